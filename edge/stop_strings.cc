#include "edge/stop_strings.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sparkv {

absl::StatusOr<StopStrings> StopStrings::Create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStopStrings) {
    return absl::InvalidArgumentError(absl::StrCat("stop: got ", stops.size(), " strings, at most ",
                                                   kMaxStopStrings, " are allowed"));
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stop: got a string of ", stop.size(), " bytes, 1 to ", kMaxStopBytes, " are allowed"));
    }
  }
  return StopStrings(std::move(stops));
}

std::string StopStrings::Push(std::string_view text) {
  if (stopped_) return "";
  held_.append(text);
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  // The longest end of the text that begins some stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        keep = n;
        break;
      }
    }
  }
  // Never show half of a character: the bytes before a held continuation byte belong to it.
  size_t cut = held_.size() - keep;
  while (cut > 0 && cut < held_.size() && (static_cast<unsigned char>(held_[cut]) & 0xC0) == 0x80)
    --cut;
  std::string out = held_.substr(0, cut);
  held_.erase(0, cut);
  return out;
}

std::string StopStrings::Flush() {
  std::string out = std::move(held_);
  held_.clear();
  return stopped_ ? "" : out;
}

}  // namespace sparkv

#include "edge/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "common/base/clock.h"

namespace sparkv::cli {

Progress::Progress(std::string what, std::string unit, bool quiet)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_(RealClock().Now()),
      last_(begin_ - absl::Hours(1)) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputc('\n', stderr);
}

void Progress::Clear() {
  if (!shown_ || !terminal_) return;
  std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

void Progress::Update(uint64_t done, uint64_t total, double seconds_left) {
  if (quiet_) return;
  const absl::Duration now = RealClock().Now();
  const bool complete = total > 0 && done >= total;
  if (complete && complete_) return;
  complete_ = complete;
  if (!complete && now - last_ < (terminal_ ? absl::Milliseconds(100) : absl::Seconds(2))) return;
  last_ = now;
  if (seconds_left <= 0 && done > 0 && done < total) {
    seconds_left = absl::ToDoubleSeconds(now - begin_) * static_cast<double>(total - done) /
                   static_cast<double>(done);
  }
  std::string counts = absl::StrFormat("%d / %d %s", done, total, unit_);
  if (!complete && seconds_left > 0) counts += absl::StrFormat(", %.0f s left", seconds_left);
  if (terminal_) {
    constexpr int kCells = 24;
    const int filled =
        total == 0 ? 0 : static_cast<int>(std::min<uint64_t>(kCells, done * kCells / total));
    std::fprintf(stderr, "\r%s [%s%s] %s\x1b[K", what_.c_str(),
                 std::string(static_cast<size_t>(filled), '#').c_str(),
                 std::string(static_cast<size_t>(kCells - filled), ' ').c_str(), counts.c_str());
  } else {
    std::fprintf(stderr, "%s: %s\n", what_.c_str(), counts.c_str());
  }
  std::fflush(stderr);
  shown_ = true;
}

std::string HumanBytes(uint64_t bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.1f %s", value, units[unit]);
}

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return std::clamp<int>(size.ws_col, 40, 240);
}

}  // namespace sparkv::cli

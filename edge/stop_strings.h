// Stop strings over streamed text: a stop text may span tokens, so text that could still become one
// is held back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sparkv {

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 256;

// Thread-compatible.
class StopStrings {
 public:
  // InvalidArgument for more than 16 strings, an empty one or one of more than 256 bytes.
  static absl::StatusOr<StopStrings> Create(std::vector<std::string> stops);

  // Takes the next piece of text and returns what can be shown now. Once a stop string is complete,
  // the text before its first occurrence has been returned, stopped() is true and nothing more
  // comes out.
  std::string Push(std::string_view text);
  // The text ended without a stop string: what was held back.
  std::string Flush();
  bool stopped() const { return stopped_; }

 private:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sparkv

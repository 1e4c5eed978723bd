// Progress on stderr: a bar that redraws itself on a terminal, else a plain line now and then.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace sparkv::cli {

// Thread-compatible.
class Progress {
 public:
  // `what` leads the line; `unit` follows the counts. quiet: prints nothing.
  Progress(std::string what, std::string unit, bool quiet);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // seconds_left 0: estimated from the pace so far.
  void Update(uint64_t done, uint64_t total, double seconds_left = 0);
  // Erases the bar (terminal only) so that other output can follow.
  void Clear();

 private:
  const std::string what_;
  const std::string unit_;
  const bool quiet_;
  const bool terminal_;
  absl::Duration begin_;
  absl::Duration last_;
  bool complete_ = false;  // said already
  bool shown_ = false;
};

// "1.9 MB".
std::string HumanBytes(uint64_t bytes);
// Columns of the terminal behind stderr, 100 without one.
int TerminalWidth();

}  // namespace sparkv::cli

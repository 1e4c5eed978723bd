// Child processes of benchmarks: daemons that report their port, and line-by-line peers.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sparkv::cli {

// A child with piped stdin and stdout; stderr goes to `log` (a path) or to our own when empty. The
// destructor sends SIGTERM, waits 5 s, then SIGKILL. Thread-compatible.
class Subprocess {
 public:
  // Unavailable with the errno text when it cannot be started.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Start(const std::vector<std::string>& argv,
                                                           const std::string& log = "");
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  absl::Status WriteLine(const std::string& line);
  // The next line of its stdout, without the newline. DeadlineExceeded, or Unavailable when the
  // child has ended.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  // Reads lines until one contains `marker` and returns what follows it.
  absl::StatusOr<std::string> ReadUntil(const std::string& marker, absl::Duration timeout);
  pid_t pid() const { return pid_; }

 private:
  Subprocess(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {}
  pid_t pid_;
  int in_;
  int out_;
  std::string buffer_;
};

// The path of a program installed beside this one, else in the build tree beside its folder, else
// `name` (found in PATH).
std::string SiblingProgram(const std::string& name);

}  // namespace sparkv::cli

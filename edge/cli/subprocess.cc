#include "edge/cli/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"

extern char** environ;

namespace sparkv::cli {

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(const std::vector<std::string>& argv,
                                                              const std::string& log) {
  if (argv.empty()) return absl::InternalError("a subprocess without a program");
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  if (::pipe2(out, O_CLOEXEC) != 0) {
    const int error = errno;
    ::close(in[0]);
    ::close(in[1]);
    return ErrnoStatus(error, "pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  absl::Cleanup destroy = [&actions] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (!log.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
  }
  std::vector<char*> raw;
  for (const std::string& arg : argv) raw.push_back(const_cast<char*>(arg.c_str()));
  raw.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, raw[0], &actions, nullptr, raw.data(), environ);
  ::close(in[0]);
  ::close(out[1]);
  if (error != 0) {
    ::close(in[1]);
    ::close(out[0]);
    return ErrnoStatus(error, argv[0]);
  }
  return std::unique_ptr<Subprocess>(new Subprocess(pid, in[1], out[0]));
}

Subprocess::~Subprocess() {
  ::close(in_);
  ::close(out_);
  ::kill(pid_, SIGTERM);
  const absl::Time deadline = absl::Now() + absl::Seconds(5);
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (absl::Now() > deadline) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
}

absl::Status Subprocess::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(in_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "writing to a subprocess");
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Subprocess::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return line;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("no line from the subprocess within ", absl::FormatDuration(timeout)));
    }
    pollfd fd{out_, POLLIN, 0};
    const int ready = ::poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "reading from a subprocess");
    if (ready <= 0) continue;
    char chunk[4096];
    const ssize_t n = ::read(out_, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "reading from a subprocess");
    if (n == 0) return absl::UnavailableError("the subprocess has ended");
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

absl::StatusOr<std::string> Subprocess::ReadUntil(const std::string& marker,
                                                  absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    absl::StatusOr<std::string> line = ReadLine(deadline - absl::Now());
    if (!line.ok()) return line.status();
    const size_t at = line->find(marker);
    if (at != std::string::npos) return line->substr(at + marker.size());
  }
}

std::string SiblingProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const auto& candidate :
         {self.parent_path() / name, self.parent_path().parent_path() / "server" / name,
          self.parent_path().parent_path().parent_path() / "server" / name,
          self.parent_path().parent_path() / "edge" / name,
          self.parent_path().parent_path() / name}) {
      if (std::filesystem::is_regular_file(candidate, error)) return candidate.string();
    }
  }
  return name;
}

}  // namespace sparkv::cli

#include "common/base/stdio.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sparkv {

void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR) < 0) return;  // open takes the lowest free number
  }
}

int FinishStdout(const char* program, int exit_code) {
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return exit_code;
  std::fprintf(stderr, "%s: cannot write to stdout%s%s\n", program, failed_before ? "" : ": ",
               failed_before ? "" : std::strerror(errno));
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace sparkv

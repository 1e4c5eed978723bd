#include "common/base/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"

namespace sparkv {

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd < 0) return ErrnoStatus(errno, path);
  std::unique_ptr<FolderLock> lock(new FolderLock(fd));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, path);
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " is in use by another process; stop it or choose another data folder"));
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace sparkv

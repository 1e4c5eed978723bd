// Keeps two processes from using one data folder.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sparkv {

// Held until destroyed, or until the process ends however it ends. Also excludes a second holder in
// this process.
class FolderLock {
 public:
  // Locks the file `folder`/lock, which is made when absent and stays. FailedPrecondition when
  // another holder has it; ErrnoStatus when the file cannot be made.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace sparkv

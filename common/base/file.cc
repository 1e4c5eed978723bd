#include "common/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {

absl::Status ErrnoStatus(int error, std::string_view what) {
  const std::string text =
      absl::StrCat(absl::string_view(what.data(), what.size()), ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

namespace {

// A descriptor to read `path` by, the caller's to close. InvalidArgument unless it is a regular
// file. Not blocking: a FIFO that nobody writes to would wait for ever.
absl::StatusOr<int> OpenRegular(const std::string& path, struct stat* st) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, path);
  absl::Cleanup close_fd = [fd] { ::close(fd); };
  if (::fstat(fd, st) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(st->st_mode)) return absl::InvalidArgumentError(path + ": not a regular file");
  std::move(close_fd).Cancel();
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  struct stat st;
  ASSIGN_OR_RETURN(const int fd, OpenRegular(path, &st));
  absl::Cleanup close_fd = [fd] { ::close(fd); };
  const size_t size = static_cast<size_t>(st.st_size);
  const uint8_t* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return ErrnoStatus(errno, path);
    data = static_cast<const uint8_t*>(mapped);
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  struct stat st;
  ASSIGN_OR_RETURN(const int fd, OpenRegular(path, &st));
  absl::Cleanup close_fd = [fd] { ::close(fd); };
  std::string out;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, path);
    }
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": larger than the ", max_bytes, " bytes allowed"));
    }
    out.append(buffer, static_cast<size_t>(n));
  }
}

absl::Status WriteFileDurably(const std::string& path, std::string_view bytes, uint32_t mode) {
  const std::string tmp =
      absl::StrCat(path, ".tmp.", ::getpid(), ".", reinterpret_cast<uintptr_t>(&bytes));
  const int fd = ::open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return ErrnoStatus(errno, tmp);
  absl::Cleanup remove_tmp = [&tmp] { ::unlink(tmp.c_str()); };
  {
    absl::Cleanup close_fd = [fd] { ::close(fd); };
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (n < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, tmp);
      }
      done += static_cast<size_t>(n);
    }
    if (::fsync(fd) != 0) return ErrnoStatus(errno, tmp);
  }
  if (::rename(tmp.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, path);
  std::move(remove_tmp).Cancel();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return ErrnoStatus(errno, folder);
  absl::Cleanup close_dir = [dir] { ::close(dir); };
  if (::fsync(dir) != 0) return ErrnoStatus(errno, folder);
  return absl::OkStatus();
}

}  // namespace sparkv

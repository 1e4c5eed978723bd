// Files: memory-mapped reads and durable writes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparkv {

// A read-only mapping of a whole file. Thread-safe after Open. The mapping lives as long as the
// object.
class MappedFile {
 public:
  // NotFound, InvalidArgument (not a regular file), or Unavailable with the errno text.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const uint8_t* data_;
  size_t size_;
};

// The whole file, at most max_bytes (ResourceExhausted beyond). NotFound when absent.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

// Writes beside `path`, fsyncs, renames over it and fsyncs the folder: after Ok the new content
// survives a crash; after an error the old content is untouched and no temporary file is left.
// `mode`: of the new file, less the umask.
absl::Status WriteFileDurably(const std::string& path, std::string_view bytes,
                              uint32_t mode = 0644);

// Status from errno: ENOENT → NotFound, ENOSPC/EDQUOT → ResourceExhausted, else Unavailable.
absl::Status ErrnoStatus(int error, std::string_view what);

}  // namespace sparkv

// Little-endian readers and writers over byte ranges. Every read is checked against what is left;
// nothing here allocates from a length that was read.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "common/base/status.h"

namespace sparkv {

// Reads from a range that must outlive the reader. Thread-compatible.
class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  // Reads one integer or float. `what` names the field in the error: DataLoss "WHAT: needs N bytes
  // at offset O, M left".
  template <typename T>
  absl::StatusOr<T> Read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    ASSIGN_OR_RETURN(std::span<const uint8_t> raw, ReadBytes(sizeof(T), what));
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  // A view of the next `n` bytes.
  absl::StatusOr<std::span<const uint8_t>> ReadBytes(uint64_t n, std::string_view what);

 private:
  std::span<const uint8_t> bytes_;
  size_t offset_ = 0;
};

// Appends to a string it owns. Thread-compatible.
class ByteWriter {
 public:
  template <typename T>
  void Write(T value) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out_.append(raw, sizeof(T));
  }
  void WriteBytes(std::span<const uint8_t> bytes) {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void WriteBytes(std::string_view bytes) { out_.append(bytes); }
  size_t size() const { return out_.size(); }
  const std::string& str() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

inline std::span<const uint8_t> AsBytes(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
inline std::string_view AsStringView(std::span<const uint8_t> b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// a*b or false on overflow, for sizes that come from outside.
inline bool CheckedMul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}
inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

}  // namespace sparkv

// A metadata value of a GGUF file, viewed in the mapped bytes: nothing is copied.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sparkv {

// The numbers are those of the file format.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "UINT32", "STRING", ...; "type 77" for a number that the format doesn't define.
std::string GgufTypeName(uint32_t type);
// Bytes of a fixed-size type; 0 for strings, arrays and undefined types.
uint32_t GgufFixedBytes(uint32_t type);

// Scalars and strings keep their bytes (a string without its length), arrays their elements as
// stored. Valid as long as the reader's bytes.
class GgufValue {
 public:
  GgufValue(GgufType type, std::span<const uint8_t> bytes) : type_(type), bytes_(bytes) {}
  GgufValue(GgufType element, uint64_t count, std::span<const uint8_t> bytes)
      : type_(GgufType::kArray), element_(element), count_(count), bytes_(bytes) {}

  GgufType type() const { return type_; }
  GgufType element_type() const { return element_; }                // of an array
  uint64_t count() const { return count_; }                         // of an array
  std::span<const uint8_t> stored_bytes() const { return bytes_; }  // as in the file, for hashing
  std::string TypeName() const;

  // Each is InvalidArgument "is X, expected Y" when the type does not fit; integers convert between
  // widths and signs when the value fits.
  absl::StatusOr<uint64_t> AsUint() const;
  absl::StatusOr<int64_t> AsInt() const;
  absl::StatusOr<double> AsDouble() const;  // floats and integers
  absl::StatusOr<bool> AsBool() const;
  absl::StatusOr<std::string_view> AsString() const;
  absl::StatusOr<std::vector<std::string_view>> AsStrings() const;
  absl::StatusOr<std::vector<int64_t>> AsInts() const;
  absl::StatusOr<std::vector<double>> AsDoubles() const;

 private:
  GgufType type_;
  GgufType element_ = GgufType::kU8;
  uint64_t count_ = 0;
  std::span<const uint8_t> bytes_;
};

}  // namespace sparkv

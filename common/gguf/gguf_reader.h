// Reads GGUF files, versions 2 and 3, little-endian.
//
//   1. "GGUF", version u32, tensor count u64, metadata count u64
//   2. metadata: key (length u64, bytes), type u32, value; an array: element type u32, count u64,
//   elements
//   3. tensor infos: name, dimension count u32, dimensions u64 (fastest first), type u32, offset
//   u64
//   4. padding to general.alignment (a power of two, UINT32, 32 when absent)
//   5. tensor data; offsets count from here and are multiples of the alignment
//
// Nothing is trusted: every length and count is compared with the bytes left before it is used, and
// memory is bounded by the limits below. Errors are InvalidArgument (a value out of range),
// DataLoss (truncated) or Unimplemented (version, tensor type, big-endian), and name the key,
// tensor and dimension. One tensor of an unsupported type refuses the whole file: a model that
// lacks a tensor can't run, and the error comes before any work is done. Empty tensors (a dimension
// of 0) and arrays of arrays are refused as well; tensors may share bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/file.h"
#include "common/gguf/gguf_value.h"
#include "kernels/gguf_dequant.h"

namespace sparkv {

inline constexpr uint64_t kMaxGgufAlignment = uint64_t{1} << 20;
inline constexpr uint32_t kMaxGgufDims = 4;
inline constexpr uint64_t kMaxGgufKeys = 65536;     // real files hold tens
inline constexpr uint64_t kMaxGgufTensors = 65536;  // real files hold some thousands

struct GgufTensor {
  std::string_view name;
  kernels::GgmlType type = kernels::GgmlType::kF32;
  uint32_t n_dims = 0;
  uint64_t dims[kMaxGgufDims] = {1, 1, 1, 1};  // fastest first: dims[0] values a row
  uint64_t offset = 0;                         // from the start of the file
  std::span<const uint8_t> data;               // all rows, without gaps

  uint64_t row() const { return dims[0]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

// Immutable and thread-safe after Open. Values and tensors point into the file's bytes.
class GgufReader {
 public:
  static absl::StatusOr<std::unique_ptr<GgufReader>> Open(const std::string& path);
  // Over bytes that outlive the reader.
  static absl::StatusOr<std::unique_ptr<GgufReader>> Parse(std::span<const uint8_t> bytes);

  uint32_t version() const { return version_; }
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  const GgufValue* Find(std::string_view key) const;  // null when absent
  // NotFound "key K is missing", InvalidArgument "key K is X, expected Y".
  absl::StatusOr<uint32_t> GetU32(std::string_view key) const;
  absl::StatusOr<uint64_t> GetU64(std::string_view key) const;
  absl::StatusOr<double> GetDouble(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(std::string_view key) const;
  absl::StatusOr<std::vector<double>> GetDoubles(std::string_view key) const;
  // The default when the key is absent; a value of another type is still an error.
  absl::StatusOr<uint32_t> GetU32Or(std::string_view key, uint32_t absent) const;
  absl::StatusOr<double> GetDoubleOr(std::string_view key, double absent) const;
  absl::StatusOr<bool> GetBoolOr(std::string_view key, bool absent) const;
  absl::StatusOr<std::string_view> GetStringOr(std::string_view key, std::string_view absent) const;

  const GgufTensor* FindTensor(std::string_view name) const;  // null when absent

 private:
  GgufReader() = default;
  absl::Status ParseAll();
  absl::StatusOr<const GgufValue*> Require(std::string_view key) const;

  std::unique_ptr<MappedFile> file_;
  std::span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> key_index_;
  absl::flat_hash_map<std::string_view, size_t> tensor_index_;
};

}  // namespace sparkv

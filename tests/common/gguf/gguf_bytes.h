// Builds GGUF files in memory, field by field, so that a test can make any of them wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/gguf/gguf_reader.h"

namespace sparkv::testing {

template <typename T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

// Length u64, then the bytes.
inline std::string GgufString(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

class GgufBytes {
 public:
  explicit GgufBytes(uint32_t version = 3) : version_(version) {}

  // A value as stored, whatever it is.
  GgufBytes& Key(std::string_view key, uint32_t type, const std::string& raw) {
    keys_ += GgufString(key) + Raw<uint32_t>(type) + raw;
    ++n_keys_;
    return *this;
  }
  GgufBytes& U32(std::string_view key, uint32_t value) { return Key(key, 4, Raw(value)); }
  GgufBytes& Bool(std::string_view key, bool value) { return Key(key, 7, Raw<uint8_t>(value)); }
  GgufBytes& F32(std::string_view key, float value) { return Key(key, 6, Raw(value)); }
  GgufBytes& String(std::string_view key, std::string_view value) {
    return Key(key, 8, GgufString(value));
  }
  GgufBytes& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string raw = Raw<uint32_t>(8) + Raw<uint64_t>(values.size());
    for (const std::string& value : values) raw += GgufString(value);
    return Key(key, 9, raw);
  }
  template <typename T>
  GgufBytes& Array(std::string_view key, uint32_t element_type, const std::vector<T>& values) {
    std::string raw = Raw<uint32_t>(element_type) + Raw<uint64_t>(values.size());
    for (const T value : values) raw += Raw(value);
    return Key(key, 9, raw);
  }
  // An info at a given offset of the data section.
  GgufBytes& Tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                    uint64_t offset) {
    tensors_ += GgufString(name) + Raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) tensors_ += Raw(dim);
    tensors_ += Raw(type) + Raw(offset);
    ++n_tensors_;
    return *this;
  }
  GgufBytes& Data(std::string bytes) {
    data_ = std::move(bytes);
    return *this;
  }
  GgufBytes& CountKeys(uint64_t n) {  // lies about the count
    n_keys_ = n;
    return *this;
  }
  GgufBytes& CountTensors(uint64_t n) {
    n_tensors_ = n;
    return *this;
  }

  // The file; the data section begins at a multiple of `alignment` when there is data.
  std::string Build(size_t alignment = 32) const {
    std::string out = "GGUF" + Raw(version_) + Raw(n_tensors_) + Raw(n_keys_) + keys_ + tensors_;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data_;
  }

 private:
  uint32_t version_;
  uint64_t n_keys_ = 0, n_tensors_ = 0;
  std::string keys_, tensors_, data_;
};

// Owns a file's bytes and reads them: an exact-size heap block, so that a sanitizer sees any
// overrun.
struct ParsedGguf {
  explicit ParsedGguf(const std::string& file)
      : size(file.size()), bytes(new uint8_t[file.size()]) {
    if (size > 0) std::memcpy(bytes.get(), file.data(), size);
    reader = GgufReader::Parse({bytes.get(), size});
  }
  std::string message() const { return std::string(reader.status().message()); }

  size_t size;
  std::unique_ptr<uint8_t[]> bytes;
  absl::StatusOr<std::unique_ptr<GgufReader>> reader = absl::UnknownError("not read");
};

}  // namespace sparkv::testing

#include "common/gguf/gguf_value.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

template <typename T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// A scalar as a wide integer with its sign kept apart, or false for other types.
bool LoadInteger(GgufType type, const uint8_t* p, bool* negative, uint64_t* magnitude) {
  int64_t value = 0;
  switch (type) {
    case GgufType::kU8:
      value = Load<uint8_t>(p);
      break;
    case GgufType::kI8:
      value = Load<int8_t>(p);
      break;
    case GgufType::kU16:
      value = Load<uint16_t>(p);
      break;
    case GgufType::kI16:
      value = Load<int16_t>(p);
      break;
    case GgufType::kU32:
      value = Load<uint32_t>(p);
      break;
    case GgufType::kI32:
      value = Load<int32_t>(p);
      break;
    case GgufType::kI64:
      value = Load<int64_t>(p);
      break;
    case GgufType::kU64:
      *negative = false;
      *magnitude = Load<uint64_t>(p);
      return true;
    default:
      return false;
  }
  *negative = value < 0;
  *magnitude = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  return true;
}

bool LoadDouble(GgufType type, const uint8_t* p, double* out) {
  if (type == GgufType::kF32) {
    *out = Load<float>(p);
    return true;
  }
  if (type == GgufType::kF64) {
    *out = Load<double>(p);
    return true;
  }
  bool negative;
  uint64_t magnitude;
  if (!LoadInteger(type, p, &negative, &magnitude)) return false;
  *out = negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
  return true;
}

absl::Status Mismatch(const GgufValue& value, const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat("is ", value.TypeName(), ", expected ", expected));
}

}  // namespace

std::string GgufTypeName(uint32_t type) {
  static constexpr const char* kNames[] = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                           "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                           "UINT64", "INT64",   "FLOAT64"};
  if (type < std::size(kNames)) return kNames[type];
  return absl::StrCat("type ", type);
}

uint32_t GgufFixedBytes(uint32_t type) {
  static constexpr uint32_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

std::string GgufValue::TypeName() const {
  const std::string name = GgufTypeName(static_cast<uint32_t>(type_));
  if (type_ != GgufType::kArray) return name;
  return absl::StrCat(name, " of ", count_, " ", GgufTypeName(static_cast<uint32_t>(element_)));
}

absl::StatusOr<uint64_t> GgufValue::AsUint() const {
  bool negative;
  uint64_t magnitude;
  if (!LoadInteger(type_, bytes_.data(), &negative, &magnitude))
    return Mismatch(*this, "an integer");
  if (negative)
    return absl::InvalidArgumentError(absl::StrCat("is -", magnitude, ", expected 0 or more"));
  return magnitude;
}

absl::StatusOr<int64_t> GgufValue::AsInt() const {
  bool negative;
  uint64_t magnitude;
  if (!LoadInteger(type_, bytes_.data(), &negative, &magnitude))
    return Mismatch(*this, "an integer");
  if (!negative && magnitude > static_cast<uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ", magnitude, ", expected at most ", INT64_MAX));
  }
  return negative ? static_cast<int64_t>(~magnitude + 1) : static_cast<int64_t>(magnitude);
}

absl::StatusOr<double> GgufValue::AsDouble() const {
  double value;
  if (!LoadDouble(type_, bytes_.data(), &value)) return Mismatch(*this, "a number");
  return value;
}

absl::StatusOr<bool> GgufValue::AsBool() const {
  if (type_ != GgufType::kBool) return Mismatch(*this, "BOOL");
  return bytes_[0] != 0;
}

absl::StatusOr<std::string_view> GgufValue::AsString() const {
  if (type_ != GgufType::kString) return Mismatch(*this, "STRING");
  return AsStringView(bytes_);
}

absl::StatusOr<std::vector<std::string_view>> GgufValue::AsStrings() const {
  if (type_ != GgufType::kArray || element_ != GgufType::kString)
    return Mismatch(*this, "ARRAY of STRING");
  // The reader has walked the elements: count_ of them are there, 8 bytes each at least.
  std::vector<std::string_view> out;
  out.reserve(count_);
  ByteReader reader(bytes_);
  for (uint64_t i = 0; i < count_; ++i) {
    ASSIGN_OR_RETURN(const uint64_t length, reader.Read<uint64_t>("string length"));
    ASSIGN_OR_RETURN(const std::span<const uint8_t> raw, reader.ReadBytes(length, "string"));
    out.push_back(AsStringView(raw));
  }
  return out;
}

absl::StatusOr<std::vector<int64_t>> GgufValue::AsInts() const {
  if (type_ != GgufType::kArray) return Mismatch(*this, "ARRAY of integers");
  const uint32_t size = GgufFixedBytes(static_cast<uint32_t>(element_));
  std::vector<int64_t> out;
  for (uint64_t i = 0; i < count_; ++i) {
    if (size == 0) return Mismatch(*this, "ARRAY of integers");
    const GgufValue element(element_, bytes_.subspan(i * size, size));
    absl::StatusOr<int64_t> value = element.AsInt();
    if (!value.ok()) return Mismatch(*this, "ARRAY of integers");
    out.push_back(*value);
  }
  return out;
}

absl::StatusOr<std::vector<double>> GgufValue::AsDoubles() const {
  if (type_ != GgufType::kArray) return Mismatch(*this, "ARRAY of numbers");
  const uint32_t size = GgufFixedBytes(static_cast<uint32_t>(element_));
  std::vector<double> out;
  for (uint64_t i = 0; i < count_; ++i) {
    double value;
    if (size == 0 || !LoadDouble(element_, bytes_.data() + i * size, &value)) {
      return Mismatch(*this, "ARRAY of numbers");
    }
    out.push_back(value);
  }
  return out;
}

}  // namespace sparkv

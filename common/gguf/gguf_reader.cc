#include "common/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

constexpr uint32_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 1024;

// A name from the file, printable and short, for messages.
std::string Shown(std::string_view name) {
  std::string out =
      absl::CHexEscape(absl::string_view(name.data(), std::min<size_t>(name.size(), 80)));
  if (name.size() > 80) out += "...";
  return out;
}

absl::Status Prefixed(const absl::Status& status, const std::string& what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

absl::StatusOr<std::string_view> ReadString(ByteReader* reader, std::string_view what,
                                            uint64_t most) {
  ASSIGN_OR_RETURN(const uint64_t length, reader->Read<uint64_t>(what));
  if (length > reader->remaining()) {
    return absl::DataLossError(absl::StrCat(std::string(what), ": length ", length, ", but ",
                                            reader->remaining(), " bytes are left in the file"));
  }
  if (length > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), ": length ", length, ", allowed: ", most));
  }
  ASSIGN_OR_RETURN(const std::span<const uint8_t> raw, reader->ReadBytes(length, what));
  return AsStringView(raw);
}

absl::StatusOr<GgufValue> ReadArray(ByteReader* reader) {
  ASSIGN_OR_RETURN(const uint32_t element, reader->Read<uint32_t>("array element type"));
  ASSIGN_OR_RETURN(const uint64_t count, reader->Read<uint64_t>("array count"));
  const bool strings = element == static_cast<uint32_t>(GgufType::kString);
  const uint32_t fixed = GgufFixedBytes(element);
  if (!strings && fixed == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an array of ", GgufTypeName(element), " is not supported"));
  }
  const uint64_t least = strings ? 8 : fixed;  // bytes that each element takes at least
  if (count > reader->remaining() / least) {
    return absl::DataLossError(absl::StrCat("an array of ", count, " ", GgufTypeName(element),
                                            ", but ", reader->remaining(),
                                            " bytes are left in the file"));
  }
  const size_t begin = reader->offset();
  ByteReader start = *reader;
  if (strings) {
    for (uint64_t i = 0; i < count; ++i) {
      const absl::StatusOr<std::string_view> element_value =
          ReadString(reader, "string", std::numeric_limits<uint32_t>::max());
      if (!element_value.ok()) return Prefixed(element_value.status(), absl::StrCat("element ", i));
    }
  } else {
    RETURN_IF_ERROR(reader->ReadBytes(count * fixed, "array").status());
  }
  ASSIGN_OR_RETURN(const std::span<const uint8_t> raw,
                   start.ReadBytes(reader->offset() - begin, "array"));
  return GgufValue(static_cast<GgufType>(element), count, raw);
}

absl::StatusOr<GgufValue> ReadValue(ByteReader* reader) {
  ASSIGN_OR_RETURN(const uint32_t type, reader->Read<uint32_t>("value type"));
  if (type == static_cast<uint32_t>(GgufType::kArray)) return ReadArray(reader);
  if (type == static_cast<uint32_t>(GgufType::kString)) {
    ASSIGN_OR_RETURN(const std::string_view text,
                     ReadString(reader, "string", std::numeric_limits<uint32_t>::max()));
    return GgufValue(GgufType::kString, AsBytes(text));
  }
  const uint32_t fixed = GgufFixedBytes(type);
  if (fixed == 0)
    return absl::InvalidArgumentError(
        absl::StrCat(GgufTypeName(type), " is not a GGUF value type"));
  ASSIGN_OR_RETURN(const std::span<const uint8_t> raw, reader->ReadBytes(fixed, "value"));
  if (type == static_cast<uint32_t>(GgufType::kBool) && raw[0] > 1) {
    return absl::InvalidArgumentError(absl::StrCat("a BOOL of ", raw[0], ", allowed: 0, 1"));
  }
  return GgufValue(static_cast<GgufType>(type), raw);
}

// What a person calls a tensor type that the ggml library defines and this build doesn't read.
std::string TensorTypeName(uint32_t type) {
  constexpr std::pair<uint32_t, const char*> kOthers[] = {
      {9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
      {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},
      {24, "I8"},    {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},
      {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}};
  for (const auto& [id, name] : kOthers) {
    if (id == type) return absl::StrCat(name, " (", type, ")");
  }
  return absl::StrCat(type);
}

// Reads one tensor info; the offset is still relative to the data section.
absl::StatusOr<GgufTensor> ReadTensorInfo(ByteReader* reader, std::string_view name,
                                          uint64_t* bytes) {
  GgufTensor tensor;
  tensor.name = name;
  ASSIGN_OR_RETURN(tensor.n_dims, reader->Read<uint32_t>("dimension count"));
  if (tensor.n_dims < 1 || tensor.n_dims > kMaxGgufDims) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.n_dims, " dimensions, allowed: 1..", kMaxGgufDims));
  }
  uint64_t values = 1;
  for (uint32_t i = 0; i < tensor.n_dims; ++i) {
    ASSIGN_OR_RETURN(tensor.dims[i], reader->Read<uint64_t>("dimension"));
    if (tensor.dims[i] == 0)
      return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " is 0"));
    if (!CheckedMul(values, tensor.dims[i], &values)) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", i, " is ", tensor.dims[i],
                                                     ": the number of values overflows"));
    }
  }
  ASSIGN_OR_RETURN(const uint32_t type, reader->Read<uint32_t>("type"));
  const kernels::GgmlTypeInfo* info = kernels::FindGgmlType(type);
  if (info == nullptr) {
    return absl::UnimplementedError(absl::StrCat("tensor type ", TensorTypeName(type),
                                                 " is not supported; supported: F32 F16 BF16 Q4_0 "
                                                 "Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K"));
  }
  if (tensor.dims[0] % info->block_values != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", tensor.dims[0], " values of type ",
                                                   info->name, ", allowed: multiples of ",
                                                   info->block_values));
  }
  tensor.type = info->type;
  if (!CheckedMul(values / info->block_values, info->block_bytes, bytes)) {
    return absl::InvalidArgumentError("the number of bytes overflows");
  }
  ASSIGN_OR_RETURN(tensor.offset, reader->Read<uint64_t>("offset"));
  return tensor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufReader>> GgufReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  absl::StatusOr<std::unique_ptr<GgufReader>> reader = Parse(file->bytes());
  if (!reader.ok()) return Prefixed(reader.status(), path);
  (*reader)->file_ = std::move(file);
  return reader;
}

absl::StatusOr<std::unique_ptr<GgufReader>> GgufReader::Parse(std::span<const uint8_t> bytes) {
  auto reader = std::unique_ptr<GgufReader>(new GgufReader);
  reader->bytes_ = bytes;
  RETURN_IF_ERROR(reader->ParseAll());
  return reader;
}

absl::Status GgufReader::ParseAll() {
  ByteReader reader(bytes_);
  ASSIGN_OR_RETURN(const std::span<const uint8_t> magic, reader.ReadBytes(4, "magic"));
  if (AsStringView(magic) != "GGUF") {
    return absl::InvalidArgumentError(
        absl::StrCat("not a GGUF file: it begins with \"", Shown(AsStringView(magic)), "\""));
  }
  ASSIGN_OR_RETURN(version_, reader.Read<uint32_t>("version"));
  if (version_ != 2 && version_ != 3) {
    const bool swapped = __builtin_bswap32(version_) == 2 || __builtin_bswap32(version_) == 3;
    return absl::UnimplementedError(
        swapped ? "a big-endian GGUF file is not supported"
                : absl::StrCat("GGUF version ", version_, " is not supported; supported: 2, 3"));
  }
  ASSIGN_OR_RETURN(const uint64_t n_tensors, reader.Read<uint64_t>("tensor count"));
  ASSIGN_OR_RETURN(const uint64_t n_keys, reader.Read<uint64_t>("metadata count"));
  // Each begins with a length of 8 bytes; what a field needs beyond that is named when it is read.
  if (n_keys > reader.remaining() / sizeof(uint64_t)) {
    return absl::DataLossError(absl::StrCat("metadata count ", n_keys, ", but ", reader.remaining(),
                                            " bytes are left in the file"));
  }
  if (n_tensors > reader.remaining() / sizeof(uint64_t)) {
    return absl::DataLossError(absl::StrCat("tensor count ", n_tensors, ", but ",
                                            reader.remaining(), " bytes are left in the file"));
  }
  if (n_keys > kMaxGgufKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata count ", n_keys, ", allowed: ", kMaxGgufKeys));
  }
  if (n_tensors > kMaxGgufTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor count ", n_tensors, ", allowed: ", kMaxGgufTensors));
  }
  for (uint64_t i = 0; i < n_keys; ++i) {
    const absl::StatusOr<std::string_view> key = ReadString(&reader, "key", kMaxKeyBytes);
    if (!key.ok()) return Prefixed(key.status(), absl::StrCat("metadata ", i));
    if (key->empty())
      return absl::InvalidArgumentError(absl::StrCat("metadata ", i, ": the key is empty"));
    const absl::StatusOr<GgufValue> value = ReadValue(&reader);
    if (!value.ok()) return Prefixed(value.status(), absl::StrCat("key ", Shown(*key)));
    if (!key_index_.emplace(*key, metadata_.size()).second) {
      return absl::InvalidArgumentError(absl::StrCat("key ", Shown(*key), " occurs twice"));
    }
    metadata_.emplace_back(*key, *value);
  }

  uint64_t alignment = 32;
  if (const GgufValue* value = Find("general.alignment"); value != nullptr) {
    if (value->type() != GgufType::kU32) {
      return absl::InvalidArgumentError(
          absl::StrCat("key general.alignment is ", value->TypeName(), ", expected UINT32"));
    }
    alignment = *value->AsUint();
    if (!std::has_single_bit(alignment) || alignment > kMaxGgufAlignment) {
      return absl::InvalidArgumentError(absl::StrCat("key general.alignment is ", alignment,
                                                     ", allowed: powers of two up to ",
                                                     kMaxGgufAlignment));
    }
  }

  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const absl::StatusOr<std::string_view> name = ReadString(&reader, "name", kMaxTensorNameBytes);
    if (!name.ok()) return Prefixed(name.status(), absl::StrCat("tensor ", i));
    if (name->empty())
      return absl::InvalidArgumentError(absl::StrCat("tensor ", i, ": the name is empty"));
    uint64_t bytes = 0;
    absl::StatusOr<GgufTensor> tensor = ReadTensorInfo(&reader, *name, &bytes);
    if (!tensor.ok()) return Prefixed(tensor.status(), absl::StrCat("tensor ", Shown(*name)));
    if (!tensor_index_.emplace(*name, tensors_.size()).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Shown(*name), " occurs twice"));
    }
    tensors_.push_back(*tensor);
    sizes.push_back(bytes);
  }

  const uint64_t data = (reader.offset() + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    GgufTensor& tensor = tensors_[i];
    if (tensor.offset % alignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Shown(tensor.name), ": offset ", tensor.offset,
                       " is no multiple of the alignment ", alignment));
    }
    uint64_t begin, end;
    if (!CheckedAdd(data, tensor.offset, &begin) || !CheckedAdd(begin, sizes[i], &end) ||
        end > bytes_.size()) {
      return absl::DataLossError(absl::StrCat(
          "tensor ", Shown(tensor.name), ": ", sizes[i], " bytes at offset ", tensor.offset,
          " of the data, which begins at ", data, "; the file has ", bytes_.size(), " bytes"));
    }
    tensor.offset = begin;
    tensor.data = bytes_.subspan(begin, sizes[i]);
  }
  return absl::OkStatus();
}

const GgufValue* GgufReader::Find(std::string_view key) const {
  const auto it = key_index_.find(key);
  return it == key_index_.end() ? nullptr : &metadata_[it->second].second;
}

const GgufTensor* GgufReader::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<const GgufValue*> GgufReader::Require(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr)
    return absl::NotFoundError(absl::StrCat("key ", std::string(key), " is missing"));
  return value;
}

namespace {
// "key K" before what is wrong with its value.
template <typename T>
absl::StatusOr<T> Named(std::string_view key, absl::StatusOr<T> value) {
  if (value.ok()) return value;
  return absl::Status(value.status().code(),
                      absl::StrCat("key ", std::string(key), " ", value.status().message()));
}
}  // namespace

absl::StatusOr<uint32_t> GgufReader::GetU32(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  ASSIGN_OR_RETURN(const uint64_t wide, Named(key, value->AsUint()));
  if (wide > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("key ", std::string(key), " is ", wide,
                                                   ", expected at most ",
                                                   std::numeric_limits<uint32_t>::max()));
  }
  return static_cast<uint32_t>(wide);
}
absl::StatusOr<uint64_t> GgufReader::GetU64(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsUint());
}
absl::StatusOr<double> GgufReader::GetDouble(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsDouble());
}
absl::StatusOr<bool> GgufReader::GetBool(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsBool());
}
absl::StatusOr<std::string_view> GgufReader::GetString(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsString());
}
absl::StatusOr<std::vector<std::string_view>> GgufReader::GetStrings(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsStrings());
}
absl::StatusOr<std::vector<int64_t>> GgufReader::GetInts(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsInts());
}
absl::StatusOr<std::vector<double>> GgufReader::GetDoubles(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  return Named(key, value->AsDoubles());
}
absl::StatusOr<uint32_t> GgufReader::GetU32Or(std::string_view key, uint32_t absent) const {
  if (!Has(key)) return absent;
  return GetU32(key);
}
absl::StatusOr<double> GgufReader::GetDoubleOr(std::string_view key, double absent) const {
  if (!Has(key)) return absent;
  return GetDouble(key);
}
absl::StatusOr<bool> GgufReader::GetBoolOr(std::string_view key, bool absent) const {
  if (!Has(key)) return absent;
  return GetBool(key);
}
absl::StatusOr<std::string_view> GgufReader::GetStringOr(std::string_view key,
                                                         std::string_view absent) const {
  if (!Has(key)) return absent;
  return GetString(key);
}

}  // namespace sparkv

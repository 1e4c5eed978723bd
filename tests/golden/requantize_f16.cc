#include "tests/golden/requantize_f16.h"

#include <cstdint>
#include <fstream>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/gguf/gguf_reader.h"
#include "kernels/half.h"

namespace sparkv::testing {
namespace {

constexpr uint64_t kAlignment = 32;

bool Unquantized(kernels::GgmlType type) {
  return type == kernels::GgmlType::kF32 || type == kernels::GgmlType::kF16 ||
         type == kernels::GgmlType::kBF16;
}

void WriteString(std::string_view text, ByteWriter* out) {
  out->Write(static_cast<uint64_t>(text.size()));
  out->WriteBytes(text);
}

void Pad(ByteWriter* out) {
  while (out->size() % kAlignment != 0) out->Write(uint8_t{0});
}

uint64_t TargetBytes(const GgufTensor& t) {
  return Unquantized(t.type) ? t.data.size() : t.row() * t.rows() * sizeof(uint16_t);
}

}  // namespace

absl::Status RequantizeToF16(const std::string& source, const std::string& target) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufReader> gguf, GgufReader::Open(source));
  ByteWriter head;
  head.WriteBytes(std::string_view("GGUF"));
  head.Write(gguf->version());
  head.Write(static_cast<uint64_t>(gguf->tensors().size()));
  head.Write(static_cast<uint64_t>(gguf->metadata().size()));
  for (const auto& [key, value] : gguf->metadata()) {
    WriteString(key, &head);
    head.Write(static_cast<uint32_t>(value.type()));
    if (value.type() == GgufType::kArray) {
      head.Write(static_cast<uint32_t>(value.element_type()));
      head.Write(value.count());
    }
    if (value.type() == GgufType::kString)
      head.Write(static_cast<uint64_t>(value.stored_bytes().size()));
    head.WriteBytes(value.stored_bytes());
  }
  uint64_t offset = 0;
  for (const GgufTensor& t : gguf->tensors()) {
    WriteString(t.name, &head);
    head.Write(t.n_dims);
    for (uint32_t i = 0; i < t.n_dims; ++i) head.Write(t.dims[i]);
    head.Write(static_cast<uint32_t>(Unquantized(t.type) ? t.type : kernels::GgmlType::kF16));
    head.Write(offset);
    offset += (TargetBytes(t) + kAlignment - 1) / kAlignment * kAlignment;
  }
  Pad(&head);
  std::ofstream out(target, std::ios::binary);
  out.write(head.str().data(), static_cast<std::streamsize>(head.size()));
  for (const GgufTensor& t : gguf->tensors()) {
    ByteWriter data;
    if (Unquantized(t.type)) {
      data.WriteBytes(t.data);
    } else {
      std::vector<float> wide(t.row());
      std::vector<uint16_t> narrow(t.row());
      const uint64_t row_bytes = t.data.size() / t.rows();
      for (uint64_t r = 0; r < t.rows(); ++r) {
        RETURN_IF_ERROR(kernels::DequantizeRowScalar(t.type, t.data.data() + r * row_bytes,
                                                     wide.data(), t.row()));
        kernels::FloatToHalf(wide.data(), narrow.data(), t.row());
        data.WriteBytes(
            {reinterpret_cast<const uint8_t*>(narrow.data()), t.row() * sizeof(uint16_t)});
      }
    }
    Pad(&data);
    out.write(data.str().data(), static_cast<std::streamsize>(data.size()));
  }
  return out ? absl::OkStatus() : absl::UnavailableError("cannot write " + target);
}

}  // namespace sparkv::testing

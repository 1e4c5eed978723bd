// GGUF files: whatever the bytes, the reader answers with a Status or a table whose every view is
// inside the file. Reads all metadata through every getter, expands a row of each tensor and writes
// the listing.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/gguf/gguf_reader.h"
#include "common/gguf/gguf_summary.h"
#include "kernels/gguf_dequant.h"
#include "kernels/gguf_linear.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = sparkv::GgufReader::Parse({data, size});
  if (!parsed.ok()) {
    Require(!parsed.status().message().empty() && parsed.status().message().size() < 4096);
    return 0;
  }
  const sparkv::GgufReader& gguf = **parsed;
  for (const auto& [key, value] : gguf.metadata()) {
    Require(gguf.Find(key) != nullptr);
    (void)gguf.GetU32(key);
    (void)gguf.GetU64(key);
    (void)gguf.GetDouble(key);
    (void)gguf.GetBool(key);
    (void)gguf.GetString(key);
    (void)gguf.GetStringOr(key, "");
    (void)value.AsInt();
    const auto strings = gguf.GetStrings(key);
    Require(!strings.ok() || strings->size() == value.count());
    const auto integers = gguf.GetInts(key);
    Require(!integers.ok() || integers->size() == value.count());
    const auto numbers = gguf.GetDoubles(key);
    Require(!numbers.ok() || numbers->size() == value.count());
  }
  for (const sparkv::GgufTensor& tensor : gguf.tensors()) {
    Require(gguf.FindTensor(tensor.name) == &tensor);
    Require(tensor.data.data() >= data && tensor.data.size() <= size &&
            static_cast<size_t>(tensor.data.data() - data) <= size - tensor.data.size());
    const sparkv::kernels::GgmlTypeInfo& info =
        *sparkv::kernels::FindGgmlType(static_cast<uint32_t>(tensor.type));
    Require(sparkv::kernels::RowBytes(info, tensor.row()) * tensor.rows() == tensor.data.size());
    // The last row, copied to an exact block so that a sanitizer sees reads beyond it.
    const size_t bytes = sparkv::kernels::RowBytes(info, tensor.row());
    std::unique_ptr<uint8_t[]> row(new uint8_t[bytes]);
    std::memcpy(row.get(), tensor.data.data() + tensor.data.size() - bytes, bytes);
    std::vector<float> values(tensor.row()), x(tensor.row(), 1.0f), y(2);
    Require(
        sparkv::kernels::DequantizeRow(tensor.type, row.get(), values.data(), values.size()).ok());
    Require(sparkv::kernels::GgufLinearRows(tensor.type, row.get(), tensor.row(), 0, 1, x.data(), 0,
                                            2, y.data(), 1)
                .ok());
  }
  (void)sparkv::GgufSummary(gguf);
  return 0;
}

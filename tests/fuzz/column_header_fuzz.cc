// Column blobs: header, index, and then every item that passes its CRC through its decoder.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "common/codec/format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparkv;
  const std::span<const uint8_t> blob(data, size);
  const auto bytes = ColumnHeaderBytes(blob);
  if (bytes.ok() && *bytes > kMaxColumnHeaderBytes) std::abort();
  const auto header = ParseColumnHeader(blob);
  if (!header.ok()) return 0;
  if (header->header_bytes > size || header->items.size() > size / 8) std::abort();
  const uint32_t layers = header->geometry.layers;
  const ByteRange all = header->LayersRange(0, layers);
  if (all.offset + all.bytes != header->file_bytes) std::abort();
  if (!VerifyColumn(blob).ok()) return 0;
  const auto decoder = FindDecoder(header->codec_id, header->codec_version);
  if (!decoder.ok() || header->shape().elements() > 1u << 18) return 0;
  std::vector<uint16_t> k(header->shape().elements()), v(header->shape().elements());
  for (uint32_t l = 0; l < layers; ++l) {
    std::vector<std::span<const uint8_t>> planes;
    for (uint32_t p = 0; p < header->planes; ++p) {
      const ByteRange r = header->ItemRange(l, p);
      planes.push_back(blob.subspan(r.offset, r.bytes));
    }
    (void)(*decoder)->DecodeBlock(header->shape(), planes, k.data(), v.data());
  }
  return 0;
}

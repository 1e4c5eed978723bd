// Planes of one block through their decoder, with no CRC in the way. Input: codec (its place in
// CodecNames()), heads - 1, tokens (u16), head_dim - 1, number of planes, then for each plane but
// the last its size (u16), then the planes.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/codec/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparkv;
  if (size < 6) return 0;
  uint16_t tokens;
  std::memcpy(&tokens, data + 2, 2);
  // Small, so that a run costs little; unequal to multiples of the lanes, so that tails are met.
  const BlockShape shape{data[1] % 4u + 1, tokens % 256u, data[4] % 80u + 1};
  const size_t count = data[5] % 7;
  std::span<const uint8_t> rest(data + 6, size - 6);
  std::vector<std::span<const uint8_t>> planes;
  for (size_t p = 0; p < count; ++p) {
    size_t bytes = rest.size();
    if (p + 1 < count) {
      if (rest.size() < 2) return 0;
      uint16_t said;
      std::memcpy(&said, rest.data(), 2);
      rest = rest.subspan(2);
      bytes = said < rest.size() ? said : rest.size();
    }
    planes.push_back(rest.first(bytes));
    rest = rest.subspan(bytes);
  }
  std::vector<uint16_t> k(shape.elements()), v(shape.elements());
  const std::vector<std::string> names = CodecNames();
  const BlockDecoder* decoder = *FindDecoder(names[data[0] % names.size()]);
  (void)decoder->DecodeBlock(shape, planes, k.data(), v.data());
  return 0;
}

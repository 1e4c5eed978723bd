// Planes of one block of a codec with a model profile, with no CRC in the way: entropy decoding,
// then the finished rows. Input: profile (of those below), layer, tokens, number of planes, then
// for each plane but the last its size (u16), then the planes.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "common/codec/dec_aatc.h"
#include "common/codec/residual_common.h"
#include "tests/testing/tiny_profile.h"

namespace {

using sparkv::ResidualDecoder;

// As the golden profiles, so that their planes are seeds.
std::vector<std::unique_ptr<ResidualDecoder>> MakeDecoders() {
  std::vector<sparkv::testing::TinyProfileOptions> options(3);
  options[1].rank_below = 64;
  options[1].predict_type = sparkv::kernels::GgmlType::kQ4_0;
  options[1].rope = sparkv::RopePairs::kSplitHalf;
  options[2].rank_below = options[2].rank_token = 0;
  options[2].pairs = 4;
  std::vector<std::unique_ptr<ResidualDecoder>> out;
  for (const auto& o : options) {
    out.push_back(*sparkv::MakeResidualDecoder(sparkv::testing::TinyProfile(o),
                                               sparkv::testing::TinyEmbedding(o.d_model)));
  }
  return out;
}

class CheckSink final : public sparkv::RowSink {
 public:
  void Write(uint32_t, uint32_t n, const float* k, const float* v, size_t stride) override {
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < 32; ++j) {
        if (!(std::abs(k[i * stride + j]) <= 65504.0f)) std::abort();
        if (!(std::abs(v[i * stride + j]) <= 65504.0f)) std::abort();
      }
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparkv;
  static const auto* const decoders = new auto(MakeDecoders());
  if (size < 4) return 0;
  const ResidualDecoder& decoder = *(*decoders)[data[0] % decoders->size()];
  const uint32_t layer = data[1] % 4;  // 3 is one too many
  const uint32_t n = data[2] % 140u;   // 0 is refused, 128 are finished together
  const size_t count = data[3] % 7;
  std::span<const uint8_t> rest(data + 4, size - 4);
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
  const auto block = decoder.Read(layer, {2, n, 16}, planes);
  if (!block.ok() || layer == 0) return 0;
  // Three times and one more for each plane, as FORMAT.md has it.
  int32_t most = kMaxFirstMagnitude;
  for (size_t p = 1; p < count; ++p) most = 3 * most + 1;
  for (const int16_t s : block->symbols) {
    if (std::abs(s) > most) std::abort();
  }
  std::vector<int32_t> tokens(n);
  for (uint32_t t = 0; t < n; ++t) tokens[t] = static_cast<int32_t>(t);
  auto chain = decoder.Begin(7, tokens);
  const std::vector<float> below(size_t{n} * 64, 0.5f);
  decoder.Restart(chain->get(), 0, n, below.data(), below.data() + 32, 64);
  CheckSink sink;
  if (!decoder.Finish(*block, layer, 0, n, chain->get(), &sink).ok()) std::abort();
  return 0;
}

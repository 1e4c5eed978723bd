// Model profiles. Size and CRC are set right, so that what lies behind them is met; a profile that
// parses then finishes a column of zeros.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/profile.h"

namespace {

class CheckSink final : public sparkv::RowSink {
 public:
  explicit CheckSink(uint32_t row) : row_(row) {}
  void Write(uint32_t, uint32_t n, const float* k, const float* v, size_t stride) override {
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < row_; ++j) {
        if (!(std::abs(k[i * stride + j]) <= 65504.0f)) std::abort();
        if (!(std::abs(v[i * stride + j]) <= 65504.0f)) std::abort();
      }
    }
  }

 private:
  const uint32_t row_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparkv;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)CodecProfile::Parse(bytes);
  if (size >= kProfilePreludeBytes + 4) {
    const auto n = static_cast<uint32_t>(size);
    std::memcpy(bytes.data() + 12, &n, 4);
    const uint32_t crc = Crc32c(AsBytes(bytes).first(size - 4));
    std::memcpy(bytes.data() + size - 4, &crc, 4);
  }
  const auto profile = CodecProfile::Parse(std::move(bytes));
  if (!profile.ok()) return 0;
  const ProfileShape& s = (*profile)->shape();
  if (s.FileBytes() != size) std::abort();
  const auto decoder = MakeResidualDecoder(
      *profile, {.width = s.d_model, .rows = [&s](std::span<const int32_t> tokens, float* out) {
                   for (size_t i = 0; i < tokens.size() * s.d_model; ++i) out[i] = 0.25f;
                   return absl::OkStatus();
                 }});
  if (!decoder.ok()) return 0;
  constexpr uint32_t kTokens = 3;
  const int32_t tokens[kTokens] = {1, 2, 3};
  auto chain = (*decoder)->Begin(5, tokens);
  if (!chain.ok()) std::abort();
  const std::vector<float> below(size_t{kTokens} * 2 * s.row(), 1.0f);
  (*decoder)->Restart(chain->get(), 0, kTokens, below.data(), below.data() + s.row(), 2 * s.row());
  BlockResidual block{.planes = 5, .symbols = std::vector<int16_t>(size_t{2} * s.row() * kTokens)};
  for (size_t i = 0; i < block.symbols.size(); ++i) {
    block.symbols[i] = static_cast<int16_t>(static_cast<int>(i % 7) * 5000 - 15000);
  }
  CheckSink sink(s.row());
  for (uint32_t l = 1; l < s.geometry.layers; ++l) {
    if (!(*decoder)->Finish(block, l, 0, kTokens, chain->get(), &sink).ok()) std::abort();
  }
  return 0;
}

#include "common/codec/enc_aatc.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/dec_transform.h"
#include "common/codec/enc_base_mismatch.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_planes.h"
#include "common/codec/enc_transform.h"
#include "common/codec/residual_common.h"
#include "kernels/gguf_gemm.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

// The first tokens of a context are attention sinks: nearly all of the output's sensitivity is
// theirs.
constexpr uint32_t kSinkTokens = 4;

using kernels::HalfToFloat;

// q = the whole numbers nearest to factor * x; 0 for those beyond +-most. False when there is one.
bool Quantize16(const float* x, float factor, float most, int16_t* q) {
  constexpr float kRound = 1.5f * (1 << 23);  // adding it leaves no place for a fraction
  int beyond = 0;
  for (int j = 0; j < 16; ++j) {
    const float value = (x[j] * factor + kRound) - kRound;
    const bool fits = std::abs(value) <= most;  // not so for a NaN
    beyond += fits ? 0 : 1;
    q[j] = static_cast<int16_t>(fits ? value : 0.0f);
  }
  return beyond == 0;
}

class Encoder final : public ColumnEncoder {
 public:
  Encoder(const CodecInfo& info, ResidualTransform transform, ForwardMatrices forward)
      : info_(info),
        transform_(std::move(transform)),
        forward_(std::move(forward)),
        digest_(CodecDigest(info, &transform_.profile().digest())) {}

  const CodecInfo& info() const override { return info_; }
  Digest digest() const override { return digest_; }
  absl::StatusOr<EncodedColumn> EncodeColumn(const ColumnInput& in,
                                             ThreadPool* pool) const override;
  // mismatch: null, or receives BaseMismatch's ratio.
  absl::StatusOr<std::vector<QuantizedBlock>> Quantize(const ColumnInput& in, ThreadPool* pool,
                                                       double* mismatch) const;

 private:
  absl::Status Check(const ColumnInput& in) const;
  // Quantizes rows [begin, end) of a layer and moves their z on. Bits of `exact` are set for tokens
  // that must travel as they are.
  void QuantizeRows(const ColumnInput& in, uint32_t layer, uint32_t begin, uint32_t end,
                    TransformChain* chain, int16_t* symbols, uint8_t* exact) const;
  void LoadRows(const ColumnInput& in, uint32_t layer, uint32_t begin, uint32_t n, float* rows,
                size_t ld) const;

  const CodecInfo& info_;
  const ResidualTransform transform_;
  const ForwardMatrices forward_;
  const Digest digest_;
};

absl::Status Encoder::Check(const ColumnInput& in) const {
  RETURN_IF_ERROR(in.shape.Validate());
  const KvGeometry& g = transform_.profile().shape().geometry;
  if (in.shape.kv_heads != g.kv_heads || in.shape.head_dim != g.head_dim ||
      in.k.size() != g.layers || in.v.size() != g.layers || in.tokens.size() != in.shape.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", std::string(info_.name), ": a column of ", in.k.size(), " layers, ",
                     in.shape.kv_heads, " KV heads of ", in.shape.head_dim, ", ", in.tokens.size(),
                     " token ids for ", in.shape.tokens, " tokens; the profile is for ", g.layers,
                     " layers, ", g.kv_heads, " KV heads of ", g.head_dim));
  }
  for (uint32_t l = 0; l < g.layers; ++l) {
    RETURN_IF_ERROR(CheckFinite(absl::StrCat(std::string(info_.name), ": layer ", l), in.shape,
                                in.k[l], in.v[l]));
  }
  return absl::OkStatus();
}

void Encoder::LoadRows(const ColumnInput& in, uint32_t layer, uint32_t begin, uint32_t n,
                       float* rows, size_t ld) const {
  const uint32_t dim = in.shape.head_dim, heads = in.shape.kv_heads;
  for (uint32_t h = 0; h < 2 * heads; ++h) {
    const uint16_t* side = h < heads ? in.k[layer] : in.v[layer];
    const uint16_t* from = side + (size_t{h % heads} * in.shape.tokens + begin) * dim;
    for (uint32_t i = 0; i < n; ++i)
      HalfToFloat(from + size_t{i} * dim, rows + i * ld + h * dim, dim);
  }
}

void Encoder::QuantizeRows(const ColumnInput& in, uint32_t layer, uint32_t begin, uint32_t end,
                           TransformChain* chain, int16_t* symbols, uint8_t* exact) const {
  const ProfileShape& s = transform_.profile().shape();
  const uint32_t wide = 2 * s.row();
  const uint32_t refinements = s.planes - 1;
  const float last_step = s.step / static_cast<float>(Pow3(refinements));
  const float most = static_cast<float>(kMaxFirstMagnitude) * static_cast<float>(Pow3(refinements));
  TransformScratch scratch(s);
  transform_.PredictFromTokens(layer, begin, end, *chain, &scratch);
  const size_t ld = kernels::GemmStride(wide);
  std::vector<float> rows(kFinishRows * ld), rest(kFinishRows * scratch.ld_x),
      coefficients(size_t{kFinishRows} * s.group);
  for (uint32_t at = begin; at < end; at += kFinishRows) {
    const uint32_t n = std::min(kFinishRows, end - at);
    LoadRows(in, layer, at, n, rows.data(), ld);
    for (uint32_t i = 0; i < n; ++i)
      transform_.RotateRow(at + i, /*back=*/true, *chain, &rows[i * ld]);
    transform_.Predict(layer, at, n, chain, &scratch);
    for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t c = 0; c < s.group; ++c) {
          const size_t j = size_t{g} * s.group + c;
          rest[i * scratch.ld_x + c] = rows[i * ld + j] - scratch.y[i * scratch.ld_y + j];
        }
      }
      ApplyForward(forward_[layer - 1][g], s.group, rest.data(), scratch.ld_x, n,
                   coefficients.data(), &scratch.gemm);
      // Few components at a time: their values lie side by side, their symbols in columns.
      constexpr uint32_t kTile = 16;
      for (uint32_t c = 0; c < s.group; c += kTile) {
        int16_t* out = symbols + (size_t{g} * s.group + c) * in.shape.tokens + at;
        for (uint32_t i = 0; i < n; ++i) {
          const float* from = &coefficients[size_t{i} * s.group + c];
          int16_t q[kTile];
          if (!Quantize16(from, 1 / last_step, most, q)) exact[at + i] = 1;
          for (uint32_t j = 0; j < kTile; ++j) out[size_t{j} * in.shape.tokens + i] = q[j];
        }
      }
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (exact[at + i] == 0) continue;
      for (uint32_t j = 0; j < wide; ++j) symbols[size_t{j} * in.shape.tokens + at + i] = 0;
    }
    if (s.rank_below == 0) continue;
    transform_.AddSymbols(layer, ResidualTransform::Part::kFirstPlane, symbols, s.planes, at, n,
                          *chain, &scratch);
    for (uint32_t i = 0; i < n; ++i) {
      const float* z = exact[at + i] != 0 ? &rows[i * ld] : &scratch.y[i * scratch.ld_y];
      std::copy_n(z, wide, chain->Z(at + i));
    }
  }
}

absl::StatusOr<std::vector<QuantizedBlock>> Encoder::Quantize(const ColumnInput& in,
                                                              ThreadPool* pool,
                                                              double* mismatch) const {
  RETURN_IF_ERROR(Check(in));
  const ProfileShape& s = transform_.profile().shape();
  const uint32_t layers = s.geometry.layers, tokens = in.shape.tokens, wide = 2 * s.row();
  ASSIGN_OR_RETURN(const std::unique_ptr<TransformChain> chain,
                   transform_.Begin(in.first_token, in.tokens));
  if (s.rank_below > 0) {
    std::vector<float> rows(size_t{tokens} * wide);
    LoadRows(in, 0, 0, tokens, rows.data(), wide);
    transform_.SetZ(0, tokens, rows.data(), rows.data() + s.row(), wide, chain.get());
  }
  BaseMismatch split(transform_, forward_, mismatch == nullptr ? 0 : tokens);
  std::vector<float> exact_z(split.rows().size() * split.stride());
  const auto load_exact = [&](uint32_t layer) {
    for (size_t i = 0; i < split.rows().size(); ++i) {
      float* row = &exact_z[i * split.stride()];
      LoadRows(in, layer, split.rows()[i], 1, row, split.stride());
      transform_.RotateRow(split.rows()[i], /*back=*/true, *chain, row);
    }
  };
  load_exact(0);
  std::vector<QuantizedBlock> blocks(layers);
  const size_t strips = (tokens + kFinishRows - 1) / kFinishRows;
  for (uint32_t l = 1; l < layers; ++l) {
    QuantizedBlock& block = blocks[l];
    block.symbols.resize(size_t{wide} * tokens);
    std::vector<uint8_t> exact(tokens);
    if (in.first_token == 0) std::fill_n(exact.begin(), std::min(kSinkTokens, tokens), 1);
    split.Predict(l, exact_z.data(), chain.get());
    // Rows of a layer are independent of one another; layers are not.
    ParallelFor(pool, strips, 1, [&](size_t begin, size_t end) {
      QuantizeRows(in, l, static_cast<uint32_t>(begin) * kFinishRows,
                   std::min(tokens, static_cast<uint32_t>(end) * kFinishRows), chain.get(),
                   block.symbols.data(), exact.data());
    });
    load_exact(l);
    split.Compare(l, exact_z.data(), chain.get(), exact.data());
    for (uint32_t t = 0; t < tokens; ++t) {
      if (exact[t] != 0) block.exact_tokens.push_back(static_cast<uint16_t>(t));
    }
    for (uint32_t h = 0; h < 2 * in.shape.kv_heads; ++h) {
      const uint16_t* side = h < in.shape.kv_heads ? in.k[l] : in.v[l];
      for (const uint16_t t : block.exact_tokens) {
        const uint16_t* row =
            side + (size_t{h % in.shape.kv_heads} * tokens + t) * in.shape.head_dim;
        block.exact.insert(block.exact.end(), row, row + in.shape.head_dim);
      }
    }
  }
  if (mismatch != nullptr) *mismatch = split.ratio();
  return blocks;
}

absl::StatusOr<EncodedColumn> Encoder::EncodeColumn(const ColumnInput& in, ThreadPool* pool) const {
  EncodedColumn column;
  ASSIGN_OR_RETURN(std::vector<QuantizedBlock> blocks, Quantize(in, pool, &column.base_mismatch));
  const size_t layers = blocks.size();
  std::vector<std::vector<std::string>>& planes = column.planes;
  planes.resize(layers);
  planes[0] = EmptyPlanes(info_);
  ParallelFor(pool, layers - 1, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      planes[i + 1] = WritePlanes(info_, transform_.profile(), static_cast<uint32_t>(i + 1),
                                  in.shape.tokens, blocks[i + 1]);
      blocks[i + 1] = {};
    }
  });
  return column;
}

}  // namespace

absl::StatusOr<std::vector<QuantizedBlock>> QuantizeColumn(const ColumnEncoder& residual_encoder,
                                                           const ColumnInput& in,
                                                           ThreadPool* pool) {
  const auto* encoder = dynamic_cast<const Encoder*>(&residual_encoder);
  if (encoder == nullptr) return absl::InvalidArgumentError("not an encoder with a profile");
  return encoder->Quantize(in, pool, nullptr);
}

absl::StatusOr<std::unique_ptr<ColumnEncoder>> MakeResidualEncoder(
    std::shared_ptr<const CodecProfile> profile, TokenEmbedding embedding) {
  ASSIGN_OR_RETURN(const CodecInfo* const info, ProfileCodec(*profile));
  ASSIGN_OR_RETURN(auto forward, ForwardTransforms(*profile));
  ASSIGN_OR_RETURN(ResidualTransform transform,
                   ResidualTransform::Create(std::move(profile), std::move(embedding)));
  return std::make_unique<Encoder>(*info, std::move(transform), std::move(forward));
}

}  // namespace sparkv

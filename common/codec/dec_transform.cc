#include "common/codec/dec_transform.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/codec/residual_common.h"
#include "kernels/gguf_gemm.h"
#include "kernels/row_ops.h"

namespace sparkv {
namespace {

using kernels::GemmScratchFloats;
using kernels::GemmStride;

// y [m][ldy] = or += x [m][ldx] times the matrix, transposed.
void Multiply(const ProfileMatrix& w, const float* x, size_t ldx, size_t m, float* y, size_t ldy,
              bool accumulate, std::vector<float>* scratch) {
  kernels::GemmArgs args{.type = w.type,
                         .w = w.data,
                         .columns = w.rows,
                         .k = w.cols,
                         .x = x,
                         .ldx = ldx,
                         .m = m,
                         .y = y,
                         .ldy = ldy,
                         .accumulate = accumulate};
  // The profile's shape has been checked: there is no error left.
  (void)kernels::GgufGemm(args, 0, w.rows, scratch->data());
}

}  // namespace

TransformScratch::TransformScratch(const ProfileShape& shape, uint32_t rows) {
  ld_y = GemmStride(2 * shape.row());
  y.resize(rows * ld_y);
  ld_x = GemmStride(shape.group);
  x.resize(rows * ld_x);
  size_t floats = GemmScratchFloats(kernels::GgmlType::kQ8_0, shape.group);
  if (shape.predicts())
    floats = std::max(floats, GemmScratchFloats(shape.predict_type, shape.rank()));
  if (shape.projects_below()) {
    floats = std::max(floats, GemmScratchFloats(shape.predict_type, 2 * shape.row()));
  }
  gemm.resize(floats);
}

absl::StatusOr<ResidualTransform> ResidualTransform::Create(
    std::shared_ptr<const CodecProfile> profile, TokenEmbedding embedding) {
  const ProfileShape& s = profile->shape();
  if (s.rank_token > 0 && (embedding.rows == nullptr || embedding.width != s.d_model)) {
    return absl::InvalidArgumentError(absl::StrCat("the profile predicts from token embeddings of ",
                                                   s.d_model, " values; got ", embedding.width));
  }
  return ResidualTransform(std::move(profile), std::move(embedding));
}

absl::StatusOr<std::unique_ptr<TransformChain>> ResidualTransform::Begin(
    uint32_t first_token, std::span<const int32_t> tokens) const {
  const ProfileShape& s = profile_->shape();
  auto chain = std::make_unique<TransformChain>();
  const auto n = static_cast<uint32_t>(tokens.size());
  chain->tokens = n;
  if (s.predicts()) {
    chain->ld_input = GemmStride(s.rank());
    chain->input.resize(n * chain->ld_input);
    if (s.projects_below()) {
      chain->ld_z = GemmStride(2 * s.row());
      chain->z.resize(n * chain->ld_z);
    }
  }
  if (s.rank_token > 0) {
    const size_t ld = GemmStride(s.d_model);
    std::vector<float> rows(size_t{kFinishRows} * ld),
        scratch(GemmScratchFloats(kernels::GgmlType::kQ8_0, s.d_model));
    std::vector<float> dense(size_t{kFinishRows} * s.d_model);
    const std::vector<float> ones(s.d_model, 1.0f);
    for (uint32_t t = 0; t < n; t += kFinishRows) {
      const uint32_t m = std::min(kFinishRows, n - t);
      RETURN_IF_ERROR(embedding_.rows(tokens.subspan(t, m), dense.data()));
      for (uint32_t i = 0; i < m; ++i) {
        kernels::RmsNorm(&dense[size_t{i} * s.d_model], ones.data(), 1e-5f, &rows[i * ld],
                         s.d_model);
      }
      Multiply(profile_->token(), rows.data(), ld, m,
               &chain->input[t * chain->ld_input + s.rank_below], chain->ld_input, false, &scratch);
    }
  }
  const size_t pairs = s.frequency.size();
  chain->cos.resize(n * pairs);
  chain->sin.resize(n * pairs);
  chain->back.resize(n * pairs);
  for (uint32_t t = 0; t < n; ++t) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = (static_cast<double>(first_token) + t) * s.frequency[i];
      chain->cos[t * pairs + i] = static_cast<float>(std::cos(angle));
      chain->sin[t * pairs + i] = static_cast<float>(std::sin(angle));
      chain->back[t * pairs + i] = -chain->sin[t * pairs + i];
    }
  }
  return chain;
}

void ResidualTransform::RotateRow(uint32_t t, bool back, const TransformChain& chain,
                                  float* k) const {
  const ProfileShape& s = profile_->shape();
  const size_t pairs = s.frequency.size();
  const float* cos = &chain.cos[t * pairs];
  const float* sin = &(back ? chain.back : chain.sin)[t * pairs];
  for (uint32_t h = 0; h < s.geometry.kv_heads; ++h, k += s.geometry.head_dim) {
    if (s.rope == RopePairs::kInterleaved) {
      kernels::RopeInterleaved(k, cos, sin, pairs);
    } else {
      kernels::RopeSplitHalf(k, cos, sin, pairs);
    }
  }
}

void ResidualTransform::SetZ(uint32_t begin, uint32_t n, const float* k, const float* v,
                             size_t stride, TransformChain* chain) const {
  const ProfileShape& s = profile_->shape();
  if (s.rank_below == 0) return;  // nothing looks at it
  for (uint32_t i = 0; i < n; ++i) {
    float* z = chain->Z(begin + i);
    std::copy_n(k + i * stride, s.row(), z);
    RotateRow(begin + i, /*back=*/true, *chain, z);
    std::copy_n(v + i * stride, s.row(), z + s.row());
  }
}

void ResidualTransform::Predict(uint32_t layer, uint32_t begin, uint32_t n, TransformChain* chain,
                                TransformScratch* scratch) const {
  const ProfileShape& s = profile_->shape();
  const ProfileLayer& l = profile_->layer(layer);
  for (uint32_t i = 0; i < n; ++i) {
    std::copy(l.offset.begin(), l.offset.end(), &scratch->y[i * scratch->ld_y]);
  }
  if (!s.predicts()) return;
  if (s.projects_below()) {
    Multiply(l.below, &chain->z[begin * chain->ld_z], chain->ld_z, n,
             &chain->input[begin * chain->ld_input], chain->ld_input, false, &scratch->gemm);
  }
  Multiply(l.predict, &chain->input[begin * chain->ld_input], chain->ld_input, n, scratch->y.data(),
           scratch->ld_y, true, &scratch->gemm);
}

void ResidualTransform::AddSymbols(uint32_t layer, Part part, const int16_t* symbols,
                                   uint32_t planes, uint32_t begin, uint32_t n,
                                   const TransformChain& chain, TransformScratch* scratch) const {
  const ProfileShape& s = profile_->shape();
  const uint32_t refinements = planes - 1;
  const auto factor = static_cast<int32_t>(Pow3(refinements));
  const float step = s.step / static_cast<float>(factor);
  const ProfileLayer& l = profile_->layer(layer);
  const size_t ld = scratch->ld_x;
  for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
    for (uint32_t c = 0; c < s.group; ++c) {
      const int16_t* in = symbols + (size_t{g} * s.group + c) * chain.tokens + begin;
      float* out = scratch->x.data() + c;
      if (refinements == 0) {
        for (uint32_t i = 0; i < n; ++i) out[i * ld] = step * static_cast<float>(in[i]);
      } else {
        for (uint32_t i = 0; i < n; ++i) {
          const int32_t first = factor * Coarser(in[i], refinements);
          out[i * ld] =
              step * static_cast<float>(part == Part::kFirstPlane ? first : in[i] - first);
        }
      }
    }
    Multiply(l.inverse[g], scratch->x.data(), ld, n, scratch->y.data() + size_t{g} * s.group,
             scratch->ld_y, true, &scratch->gemm);
  }
}

void ResidualTransform::Rotate(uint32_t begin, uint32_t n, const TransformChain& chain,
                               TransformScratch* scratch) const {
  for (uint32_t i = 0; i < n; ++i) {
    RotateRow(begin + i, /*back=*/false, chain, &scratch->y[i * scratch->ld_y]);
  }
}

}  // namespace sparkv

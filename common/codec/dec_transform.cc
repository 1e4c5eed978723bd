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

uint64_t RowBytesOf(kernels::GgmlType type, uint32_t values) {
  return kernels::RowBytes(*kernels::FindGgmlType(static_cast<uint32_t>(type)), values);
}

// y [m][ldy] = or += x [m][ldx] times columns [first, first + k) of the matrix, transposed.
void Multiply(const ProfileMatrix& w, uint32_t first, uint32_t k, const float* x, size_t ldx,
              size_t m, float* y, size_t ldy, bool accumulate, std::vector<float>* scratch) {
  const kernels::GemmArgs args{.type = w.type,
                               .w = w.data + RowBytesOf(w.type, first),
                               .w_stride = RowBytesOf(w.type, w.cols),
                               .columns = w.rows,
                               .k = k,
                               .x = x,
                               .ldx = ldx,
                               .m = m,
                               .y = y,
                               .ldy = ldy,
                               .accumulate = accumulate};
  // The profile's shape has been checked: there is no error left.
  (void)kernels::GgufGemm(args, 0, w.rows, scratch->data());
}

// Enough for any k of at most `most`.
size_t ScratchFloats(kernels::GgmlType type, uint32_t most) {
  size_t floats = 0;
  for (uint32_t k = 32; k <= most; k += 32) floats = std::max(floats, GemmScratchFloats(type, k));
  return floats;
}

}  // namespace

TransformScratch::TransformScratch(const ProfileShape& shape) {
  ld_y = GemmStride(2 * shape.row());
  y.resize(kFinishRows * ld_y);
  ld_x = GemmStride(shape.group);
  x.resize(kFinishRows * ld_x);
  if (shape.projects_below()) {
    ld_below = GemmStride(shape.rank_below);
    below.resize(kFinishRows * ld_below);
  }
  gemm.resize(
      std::max(ScratchFloats(kernels::GgmlType::kQ8_0, shape.group),
               ScratchFloats(shape.predict_type,
                             std::max({shape.rank_below, shape.rank_token, 2 * shape.row()}))));
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
  if (s.rank_below > 0) {
    chain->ld_z = GemmStride(2 * s.row());
    chain->z.resize(n * chain->ld_z);
  }
  if (s.rank_token > 0) {
    // Each token that occurs, once.
    std::vector<int32_t> distinct(tokens.begin(), tokens.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const int32_t token : tokens) {
      chain->which.push_back(static_cast<uint32_t>(
          std::lower_bound(distinct.begin(), distinct.end(), token) - distinct.begin()));
    }
    chain->ld_u = GemmStride(s.rank_token);
    chain->u.resize(distinct.size() * chain->ld_u);
    const size_t ld = GemmStride(s.d_model);
    std::vector<float> rows(kFinishRows * ld), dense(size_t{kFinishRows} * s.d_model);
    std::vector<float> scratch(ScratchFloats(kernels::GgmlType::kQ8_0, s.d_model));
    const std::vector<float> ones(s.d_model, 1.0f);
    for (size_t t = 0; t < distinct.size(); t += kFinishRows) {
      const size_t m = std::min<size_t>(kFinishRows, distinct.size() - t);
      RETURN_IF_ERROR(embedding_.rows(std::span(distinct).subspan(t, m), dense.data()));
      for (size_t i = 0; i < m; ++i) {
        kernels::RmsNorm(&dense[i * s.d_model], ones.data(), 1e-5f, &rows[i * ld], s.d_model);
      }
      Multiply(profile_->token(), 0, s.d_model, rows.data(), ld, m, &chain->u[t * chain->ld_u],
               chain->ld_u, false, &scratch);
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

void ResidualTransform::PredictFromTokens(uint32_t layer, uint32_t begin, uint32_t end,
                                          const TransformChain& chain,
                                          TransformScratch* scratch) const {
  const ProfileShape& s = profile_->shape();
  if (s.rank_token == 0) return;
  constexpr uint32_t kNone = ~0u;
  scratch->part_of_u.assign(chain.u.size() / chain.ld_u, kNone);
  std::vector<uint32_t> rows;
  for (uint32_t t = begin; t < end; ++t) {
    uint32_t& part = scratch->part_of_u[chain.which[t]];
    if (part != kNone) continue;
    part = static_cast<uint32_t>(rows.size());
    rows.push_back(chain.which[t]);
  }
  std::vector<float> u(rows.size() * chain.ld_u);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(&chain.u[rows[i] * chain.ld_u], s.rank_token, &u[i * chain.ld_u]);
  }
  scratch->token_part.resize(rows.size() * scratch->ld_y);
  Multiply(profile_->layer(layer).predict, s.rank_below, s.rank_token, u.data(), chain.ld_u,
           rows.size(), scratch->token_part.data(), scratch->ld_y, false, &scratch->gemm);
}

void ResidualTransform::Predict(uint32_t layer, uint32_t begin, uint32_t n, TransformChain* chain,
                                TransformScratch* scratch) const {
  const ProfileShape& s = profile_->shape();
  const ProfileLayer& l = profile_->layer(layer);
  for (uint32_t i = 0; i < n; ++i) {
    float* y = &scratch->y[i * scratch->ld_y];
    if (s.rank_token == 0) {
      std::copy(l.offset.begin(), l.offset.end(), y);
      continue;
    }
    const float* part =
        &scratch->token_part[scratch->part_of_u[chain->which[begin + i]] * scratch->ld_y];
    for (uint32_t j = 0; j < 2 * s.row(); ++j) y[j] = l.offset[j] + part[j];
  }
  if (s.rank_below > 0) AddBelow(layer, chain->Z(begin), chain->ld_z, n, scratch);
}

void ResidualTransform::AddBelow(uint32_t layer, const float* z, size_t ld, uint32_t n,
                                 TransformScratch* scratch) const {
  const ProfileShape& s = profile_->shape();
  const ProfileLayer& l = profile_->layer(layer);
  if (s.projects_below()) {
    Multiply(l.below, 0, l.below.cols, z, ld, n, scratch->below.data(), scratch->ld_below, false,
             &scratch->gemm);
    z = scratch->below.data();
    ld = scratch->ld_below;
  }
  Multiply(l.predict, 0, s.rank_below, z, ld, n, scratch->y.data(), scratch->ld_y, true,
           &scratch->gemm);
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
    // Components come by falling variance: behind the last that has a value there is nothing to
    // add.
    uint32_t used = 0;
    for (uint32_t c = 0; c < s.group; ++c) {
      const int16_t* in = symbols + (size_t{g} * s.group + c) * chain.tokens + begin;
      float* out = scratch->x.data() + c;
      bool any = false;
      for (uint32_t i = 0; i < n; ++i) {
        int32_t value = in[i];
        if (refinements > 0) {
          const int32_t first = factor * Coarser(value, refinements);
          value = part == Part::kFirstPlane ? first : value - first;
        }
        any = any || value != 0;
        out[i * ld] = step * static_cast<float>(value);
      }
      if (any) used = c + 1;
    }
    used = (used + 31) / 32 * 32;
    if (used == 0) continue;
    Multiply(l.inverse[g], 0, used, scratch->x.data(), ld, n,
             scratch->y.data() + size_t{g} * s.group, scratch->ld_y, true, &scratch->gemm);
  }
}

void ResidualTransform::Rotate(uint32_t begin, uint32_t n, const TransformChain& chain,
                               TransformScratch* scratch) const {
  for (uint32_t i = 0; i < n; ++i) {
    RotateRow(begin + i, /*back=*/false, chain, &scratch->y[i * scratch->ld_y]);
  }
}

}  // namespace sparkv

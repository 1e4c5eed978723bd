#include "common/codec/dec_aatc.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/codec/dec_planes.h"
#include "common/codec/dec_transform.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

constexpr float kMaxHalf = 65504.0f;

CodecInfo Info(std::string_view name, uint32_t id) {
  return {.name = name,
          .id = id,
          .version = 1,
          .planes = 5,
          .levels = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}},
          .default_level = 1,
          .lossless = false,
          .needs_profile = true,
          .computes_first_layer = true};
}

class Decoder final : public ResidualDecoder {
 public:
  Decoder(const CodecInfo& info, ResidualTransform transform)
      : info_(info),
        transform_(std::move(transform)),
        tables_(BuildProfileTables(transform_.profile())) {}

  const CodecInfo& info() const override { return info_; }
  bool predicts() const override { return transform_.profile().shape().rank_below > 0; }

  absl::StatusOr<BlockResidual> Read(
      uint32_t layer, const BlockShape& shape,
      std::span<const std::span<const uint8_t>> planes) const override {
    return ReadResidual(info_, transform_.profile(), {tables_.get(), kProfileTables}, layer, shape,
                        planes);
  }

  absl::StatusOr<std::unique_ptr<ColumnChain>> Begin(
      uint32_t first_token, std::span<const int32_t> tokens) const override {
    return transform_.Begin(first_token, tokens);
  }

  void Restart(ColumnChain* chain, uint32_t begin, uint32_t n, const float* k, const float* v,
               size_t stride) const override {
    transform_.SetZ(begin, n, k, v, stride, static_cast<TransformChain*>(chain));
  }

  absl::Status Finish(const BlockResidual& residual, uint32_t layer, uint32_t begin, uint32_t end,
                      ColumnChain* column, RowSink* sink) const override;

 private:
  // Row `row` of the scratch = exact token number `i`, K after RoPE.
  void CopyExact(const BlockResidual& residual, size_t i, float* row) const;

  const CodecInfo& info_;
  const ResidualTransform transform_;
  const std::unique_ptr<kernels::RansTable[]> tables_;
};

void Decoder::CopyExact(const BlockResidual& residual, size_t i, float* row) const {
  const KvGeometry& g = transform_.profile().shape().geometry;
  const size_t n = residual.exact_tokens.size();
  for (uint32_t head = 0; head < 2 * g.kv_heads; ++head) {
    kernels::HalfToFloat(&residual.exact[(head * n + i) * g.head_dim], row + head * g.head_dim,
                         g.head_dim);
  }
}

absl::Status Decoder::Finish(const BlockResidual& residual, uint32_t layer, uint32_t begin,
                             uint32_t end, ColumnChain* column, RowSink* sink) const {
  auto* chain = static_cast<TransformChain*>(column);
  const ProfileShape& s = transform_.profile().shape();
  const size_t wide = size_t{2} * s.row();
  if (layer == 0 || layer >= s.geometry.layers || begin % kFinishRows != 0 || begin > end ||
      end > chain->tokens || residual.symbols.size() != wide * chain->tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codec ", std::string(info_.name), ": finishing rows ", begin, "..", end, " of layer ",
        layer, " with ", residual.symbols.size(), " symbols in a column of ", chain->tokens));
  }
  TransformScratch scratch(s);
  transform_.PredictFromTokens(layer, begin, end, *chain, &scratch);
  const auto& exact = residual.exact_tokens;
  for (uint32_t at = begin; at < end; at += kFinishRows) {
    const uint32_t n = std::min(kFinishRows, end - at);
    transform_.Predict(layer, at, n, chain, &scratch);
    transform_.AddSymbols(layer, ResidualTransform::Part::kFirstPlane, residual.symbols.data(),
                          residual.planes, at, n, *chain, &scratch);
    const auto first = std::lower_bound(exact.begin(), exact.end(), at);
    const auto last = std::lower_bound(first, exact.end(), at + n);
    if (s.rank_below > 0) {
      for (uint32_t i = 0; i < n; ++i)
        std::copy_n(&scratch.y[i * scratch.ld_y], wide, chain->Z(at + i));
      for (auto e = first; e != last; ++e) {
        CopyExact(residual, static_cast<size_t>(e - exact.begin()), chain->Z(*e));
        transform_.RotateRow(*e, /*back=*/true, *chain, chain->Z(*e));
      }
    }
    if (residual.planes > 1) {
      transform_.AddSymbols(layer, ResidualTransform::Part::kFurtherPlanes, residual.symbols.data(),
                            residual.planes, at, n, *chain, &scratch);
    }
    transform_.Rotate(at, n, *chain, &scratch);
    for (uint32_t i = 0; i < n; ++i) {
      float* row = &scratch.y[i * scratch.ld_y];
      for (size_t j = 0; j < wide; ++j) {
        // Written so that a NaN, which only an absurd profile makes, becomes a number too.
        const float x = row[j] > -kMaxHalf ? row[j] : -kMaxHalf;
        row[j] = x < kMaxHalf ? x : kMaxHalf;
      }
    }
    for (auto e = first; e != last; ++e) {
      CopyExact(residual, static_cast<size_t>(e - exact.begin()),
                &scratch.y[(*e - at) * scratch.ld_y]);
    }
    sink->Write(at, n, scratch.y.data(), scratch.y.data() + s.row(), scratch.ld_y);
  }
  return absl::OkStatus();
}

}  // namespace

const CodecInfo& AatcInfo() {
  static const CodecInfo* const info = new CodecInfo(Info("aatc", 6));
  return *info;
}

const CodecInfo& AatcPredInfo() {
  static const CodecInfo* const info = new CodecInfo(Info("aatc-pred", 7));
  return *info;
}

absl::StatusOr<const CodecInfo*> ProfileCodec(const CodecProfile& profile) {
  const ProfileShape& s = profile.shape();
  for (const CodecInfo* info : {&AatcInfo(), &AatcPredInfo()}) {
    if (s.codec_id != info->id || s.codec_version != info->version) continue;
    if (s.planes != static_cast<uint32_t>(info->planes) ||
        s.predicts() != (info == &AatcPredInfo())) {
      break;
    }
    return info;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the profile is for codec id ", s.codec_id, " version ", s.codec_version,
                   " with ", s.planes, " planes, rank ", s.rank(),
                   "; supported: aatc (id 6 version 1, 5 planes, rank 0), aatc-pred "
                   "(id 7 version 1, 5 planes, rank above 0)"));
}

absl::StatusOr<std::unique_ptr<ResidualDecoder>> MakeResidualDecoder(
    std::shared_ptr<const CodecProfile> profile, TokenEmbedding embedding) {
  ASSIGN_OR_RETURN(const CodecInfo* const info, ProfileCodec(*profile));
  ASSIGN_OR_RETURN(ResidualTransform transform,
                   ResidualTransform::Create(std::move(profile), std::move(embedding)));
  return std::make_unique<Decoder>(*info, std::move(transform));
}

}  // namespace sparkv

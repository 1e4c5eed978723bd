// A model profile: what a transform codec knows of a model's K and V before it sees a context.
// FORMAT.md section 5 defines the bytes, calibration (common/calibrate) makes them.
//
// Notation. row = kv_heads * head_dim; z(l) = K before RoPE and V of layer l, [2 * row], as the
// first plane gives them; e = a token's embedding, divided by its root mean square. In layer l >= 1
//   prediction                 x = offset(l) + predict(l) * [ below(l) * z(l-1) ; token * e ]
//   K before RoPE and V          = x + inverse(l) * (step / 3^(planes - 1)) * symbols
// with below(l) left out where rank_below = 2 * row. This is attention-aware transform coding:
// inverse = W^-1/2 U, with W the weight of an error and U the eigenvectors of the weighted residual
// covariance.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/kv/geometry.h"
#include "kernels/gguf_dequant.h"

namespace sparkv {

inline constexpr char kProfileMagic[8] = {'S', 'P', 'K', 'V', 'P', 'R', 'F', '\x1a'};
inline constexpr uint16_t kProfileFormatVersion = 1;
inline constexpr uint64_t kMaxProfileBytes = 1u << 28;
inline constexpr uint32_t kMaxModelWidth = 1u << 16;  // d_model
inline constexpr uint32_t kMaxTransformGroup = 1024;  // values transformed together
inline constexpr uint32_t kMaxPredictionRank = 1024;  // of either kind
inline constexpr float kMinProfileStep = 0x1p-60f, kMaxProfileStep = 0x1p60f;
inline constexpr double kMaxRopeFrequency = 1024;  // in magnitude
inline constexpr uint32_t kProfileTables = 64;     // frequency tables of the first plane
inline constexpr uint32_t kProfileSymbols =
    256;  // of a table; the last one is the escape, which every table has
inline constexpr uint64_t kProfilePreludeBytes = 92;

// Rows as of kernels/gguf_dequant.h, cols a multiple of 32. Points into the profile.
struct ProfileMatrix {
  kernels::GgmlType type = kernels::GgmlType::kQ8_0;
  const uint8_t* data = nullptr;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

enum class RopePairs : uint8_t { kInterleaved = 1, kSplitHalf = 2 };

struct ProfileShape {
  uint32_t codec_id = 0;
  uint32_t codec_version = 0;
  uint32_t planes = 0;
  KvGeometry geometry;  // f16
  uint32_t d_model = 0;
  uint32_t group =
      0;  // values of K (or V) that are transformed together; divides row, multiple of 32
  uint32_t rank_below = 0;  // multiples of 32; both 0: no prediction
  uint32_t rank_token = 0;
  kernels::GgmlType predict_type = kernels::GgmlType::kQ8_0;  // of below and predict: Q8_0 or Q4_0
  RopePairs rope = RopePairs::kInterleaved;
  std::vector<double> frequency;  // radians per position of each pair, at most head_dim / 2
  float step = 0;                 // of the first plane; each further one has a third of it
  Digest model_fingerprint{};

  uint32_t row() const { return geometry.row(); }
  uint32_t groups() const { return row() / group; }
  uint32_t rank() const { return rank_below + rank_token; }
  bool predicts() const { return rank() > 0; }
  bool projects_below() const { return rank_below > 0 && rank_below != 2 * row(); }
  // InvalidArgument naming the field that breaks a limit.
  absl::Status Validate() const;
  // Bytes of a profile of this shape.
  uint64_t FileBytes() const;
};

struct ProfileLayer {
  std::span<const float> offset;       // [2 * row]
  ProfileMatrix below;                 // [rank_below][2 * row]; no rows unless projects_below()
  ProfileMatrix predict;               // [2 * row][rank]
  std::vector<ProfileMatrix> inverse;  // [2 * groups] of [group][group], K's first
  std::span<const uint8_t> table;  // [2 * row]: the first plane's likeliest table of each component
};

// Immutable and thread-safe.
class CodecProfile {
 public:
  // Checks everything. DataLoss for bytes that are no profile or damaged (then at most
  // kMaxProfileBytes were looked at and less than their size + 100 KB allocated),
  // FailedPrecondition for another version.
  static absl::StatusOr<std::shared_ptr<const CodecProfile>> Parse(std::string bytes);

  const ProfileShape& shape() const { return shape_; }
  // SHA-256 of the bytes: the profile's name.
  const Digest& digest() const { return digest_; }
  std::string_view bytes() const { return bytes_; }
  const ProfileMatrix& token() const { return token_; }
  // [kProfileTables][kProfileSymbols]; each table sums to 4096.
  std::span<const uint32_t> frequencies() const { return frequencies_; }
  // 1 <= layer < layers.
  const ProfileLayer& layer(uint32_t layer) const { return layers_[layer - 1]; }

 private:
  CodecProfile() = default;
  std::string bytes_;
  ProfileShape shape_;
  Digest digest_{};
  ProfileMatrix token_;
  std::vector<uint32_t> frequencies_;
  std::vector<float> offsets_;
  std::vector<ProfileLayer> layers_;
};

}  // namespace sparkv

#include "kernels/block_attention_cuda.h"

#include "absl/strings/str_cat.h"
#include "kernels/block_attention.h"
#include "kernels/block_attention_launch.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kMaxQueryBlocks = 65535;     // of a grid's second dimension
constexpr size_t kMaxMassBlocks = 8 * 65535;  // eight to each of a grid's third

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("attention on CUDA: ", parts...));
}

absl::Status Check(const BlockAttentionArgs& a) {
  if (absl::Status s = CheckBlockAttentionShapes(a); !s.ok()) return s;
  if (a.query_blocks() > kMaxQueryBlocks)
    return Bad("rows is ", a.rows, ", at most ", kMaxQueryBlocks * kQueryBlock);
  if (a.rows != 0 && a.lists.begin != nullptr && a.lists.blocks == nullptr)
    return Bad("lists.blocks is null");
  if (a.mass != nullptr && a.log_sum == nullptr) return Bad("log_sum is null, mass needs it");
  if (a.mass != nullptr && a.key_blocks() > kMaxMassBlocks)
    return Bad("mass of ", a.key_blocks(), " key blocks, at most ", kMaxMassBlocks);
  return absl::OkStatus();
}

#ifdef SPARKV_HAS_CUDA
absl::Status Said(const char* error) {
  if (error == nullptr) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("attention: CUDA says: ", error));
}
#else
absl::Status NoCuda() {
  return absl::UnimplementedError("attention: this build has no CUDA kernels (SPARKV_CUDA is off)");
}
#endif

}  // namespace

absl::Status BlockSparseAttentionCuda(const BlockAttentionArgs& a, uint32_t* faults,
                                      CudaStream stream) {
  if (absl::Status s = Check(a); !s.ok()) return s;
#ifdef SPARKV_HAS_CUDA
  if (a.rows == 0) return absl::OkStatus();
  if (absl::Status s = Said(cuda::LaunchBlockAttention(a, faults, stream)); !s.ok()) return s;
  return a.mass == nullptr ? absl::OkStatus() : Said(cuda::LaunchAttentionMass(a, stream));
#else
  (void)faults;
  (void)stream;
  return NoCuda();
#endif
}

size_t PagedDecodeScratchFloats(const BlockAttentionArgs& a) {
  return DecodeParts(a.key_blocks()) * a.heads * a.rows * (a.kv.dim + 2);
}

absl::Status PagedDecodeAttentionCuda(const BlockAttentionArgs& a, float* scratch,
                                      size_t scratch_floats, uint32_t* faults, CudaStream stream) {
  if (absl::Status s = Check(a); !s.ok()) return s;
  if (a.rows > kDecodeRows) return Bad("rows is ", a.rows, ", at most ", kDecodeRows);
  if (const size_t need = PagedDecodeScratchFloats(a); scratch_floats < need)
    return Bad("scratch_floats is ", scratch_floats, ", at least ", need);
  if (a.rows != 0 && scratch == nullptr) return Bad("scratch is null");
#ifdef SPARKV_HAS_CUDA
  if (a.rows == 0) return absl::OkStatus();
  if (absl::Status s = Said(cuda::LaunchPagedDecode(a, scratch, faults, stream)); !s.ok()) return s;
  return a.mass == nullptr ? absl::OkStatus() : Said(cuda::LaunchAttentionMass(a, stream));
#else
  (void)faults;
  (void)stream;
  return NoCuda();
#endif
}

}  // namespace sparkv::kernels

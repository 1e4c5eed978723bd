#include "common/kv/geometry.h"

#include "absl/strings/str_cat.h"

namespace sparkv {

absl::Status KvGeometry::Validate() const {
  const auto check = [](const char* what, uint32_t got, uint32_t most) {
    if (got >= 1 && got <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", got, ", allowed: 1..", most));
  };
  absl::Status status = check("layers", layers, kMaxLayers);
  status.Update(check("kv_heads", kv_heads, kMaxKvHeads));
  status.Update(check("head_dim", head_dim, kMaxHeadDim));
  if (status.ok() && dtype != KvDtype::kF16 && dtype != KvDtype::kF32) {
    status = absl::InvalidArgumentError("KV dtype is neither f16 nor f32");
  }
  return status;
}

std::string KvGeometry::ToString() const {
  return absl::StrCat(layers, " layers x ", kv_heads, " KV heads x ", head_dim, " ",
                      dtype == KvDtype::kF16 ? "f16" : "f32");
}

}  // namespace sparkv

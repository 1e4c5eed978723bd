// Content addresses of stored contexts: a chain of SHA-256 over columns, so that contexts with a
// common prefix share stored columns and nobody can hit or guess another tenant's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/sha256.h"
#include "common/kv/geometry.h"

namespace sparkv {

// How prefill attention was computed; part of a context's identity.
struct PrefillMode {
  std::string attention = "dense";  // "dense", later the sparse modes with their parameters
  std::string ToString() const { return attention; }
};

// Everything but the token ids that a column's content depends on.
struct ContextIdentity {
  Digest model_fingerprint{};
  Digest codec_digest{};  // codec name, version and parameters, profile included
  PrefillMode prefill;
  KvDtype kv_dtype = KvDtype::kF16;
  std::string tenant_salt;  // empty: one tenant
};

// Keys of the columns of `tokens`, first to last. The last one is the context id. Empty for no
// tokens.
std::vector<Digest> ColumnKeys(const ContextIdentity& identity, std::span<const int32_t> tokens);

}  // namespace sparkv

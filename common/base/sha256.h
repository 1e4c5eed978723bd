// SHA-256 over tagged, length-prefixed fields, for content addresses and fingerprints.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct evp_md_ctx_st;

namespace sparkv {

using Digest = std::array<uint8_t, 32>;

std::string DigestToHex(const Digest& digest);               // 64 lower-case hex digits
absl::StatusOr<Digest> DigestFromHex(std::string_view hex);  // InvalidArgument unless 64 hex digits
absl::StatusOr<Digest> DigestFromBytes(std::string_view bytes);  // InvalidArgument unless 32 bytes

// Thread-compatible; Finish may be called once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& Update(std::span<const uint8_t> bytes);
  Sha256& Update(std::string_view bytes);
  // len(tag) as u32, tag, len(bytes) as u64, bytes: no two field lists share an encoding.
  Sha256& Field(std::string_view tag, std::string_view bytes);
  Sha256& Field(std::string_view tag, uint64_t value);
  Digest Finish();

 private:
  evp_md_ctx_st* ctx_;
};

}  // namespace sparkv

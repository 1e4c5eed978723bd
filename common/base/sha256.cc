#include "common/base/sha256.h"

#include <openssl/evp.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sparkv {

std::string DigestToHex(const Digest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

absl::StatusOr<Digest> DigestFromHex(std::string_view hex) {
  if (hex.size() != 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("a digest is 64 hexadecimal digits, got ", hex.size(), " characters"));
  }
  for (char c : hex) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) {
      return absl::InvalidArgumentError("a digest is 64 hexadecimal digits, got another character");
    }
  }
  return DigestFromBytes(absl::HexStringToBytes(absl::string_view(hex.data(), hex.size())));
}

absl::StatusOr<Digest> DigestFromBytes(std::string_view bytes) {
  Digest digest;
  if (bytes.size() != digest.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a digest is 32 bytes, got ", bytes.size()));
  }
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

Sha256::Sha256() : ctx_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(ctx_, EVP_sha256(), nullptr); }
Sha256::~Sha256() { EVP_MD_CTX_free(ctx_); }

Sha256& Sha256::Update(std::span<const uint8_t> bytes) {
  EVP_DigestUpdate(ctx_, bytes.data(), bytes.size());
  return *this;
}
Sha256& Sha256::Update(std::string_view bytes) {
  EVP_DigestUpdate(ctx_, bytes.data(), bytes.size());
  return *this;
}
Sha256& Sha256::Field(std::string_view tag, std::string_view bytes) {
  const uint32_t tag_len = static_cast<uint32_t>(tag.size());
  const uint64_t len = bytes.size();
  EVP_DigestUpdate(ctx_, &tag_len, sizeof(tag_len));
  EVP_DigestUpdate(ctx_, tag.data(), tag.size());
  EVP_DigestUpdate(ctx_, &len, sizeof(len));
  EVP_DigestUpdate(ctx_, bytes.data(), bytes.size());
  return *this;
}
Sha256& Sha256::Field(std::string_view tag, uint64_t value) {
  return Field(tag, std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
}
Digest Sha256::Finish() {
  Digest digest;
  unsigned int len = 0;
  EVP_DigestFinal_ex(ctx_, digest.data(), &len);
  return digest;
}

}  // namespace sparkv

#include "common/kv/context_id.h"

#include <algorithm>

#include "common/base/bytes.h"

namespace sparkv {

std::vector<Digest> ColumnKeys(const ContextIdentity& identity, std::span<const int32_t> tokens) {
  std::vector<Digest> keys;
  Digest previous = Sha256()
                        .Field("sparkv.context", uint64_t{1})
                        .Field("model", AsStringView(identity.model_fingerprint))
                        .Field("codec", AsStringView(identity.codec_digest))
                        .Field("prefill", identity.prefill.ToString())
                        .Field("dtype", static_cast<uint64_t>(identity.kv_dtype))
                        .Field("salt", identity.tenant_salt)
                        .Finish();
  for (size_t begin = 0; begin < tokens.size(); begin += kColumnTokens) {
    const auto ids = tokens.subspan(begin, std::min<size_t>(kColumnTokens, tokens.size() - begin));
    previous = Sha256()
                   .Field("previous", AsStringView(previous))
                   .Field("tokens", std::string_view(reinterpret_cast<const char*>(ids.data()),
                                                     ids.size_bytes()))
                   .Finish();
    keys.push_back(previous);
  }
  return keys;
}

}  // namespace sparkv

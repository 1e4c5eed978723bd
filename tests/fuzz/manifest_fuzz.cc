// The manifest that a server sends: protobuf bytes to what an edge plans a load from. What is
// accepted must keep every promise of common/rpc/wire.h and come back the same.
#include <cstdint>
#include <cstdlib>

#include "common/codec/format.h"
#include "common/rpc/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparkv;
  v1::Manifest message;
  if (size > 1u << 20 || !message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto m = FromProto(message);
  if (!m.ok()) return 0;
  if (!m->geometry.Validate().ok() || m->planes < 1 || m->planes > kMaxPlanes) std::abort();
  const auto tokens = static_cast<uint32_t>(m->tokens.size());
  if (tokens < 1 || tokens > kMaxContextTokens || m->columns.size() != ColumnCount(tokens)) {
    std::abort();
  }
  for (const int32_t token : m->tokens) {
    if (token < 0) std::abort();
  }
  for (uint32_t t = 0; t < m->columns.size(); ++t) {
    const ManifestColumn& c = m->columns[t];
    if (c.tokens != ColumnTokens(tokens, t)) std::abort();
    if (c.items.size() != size_t{m->geometry.layers} * m->planes) std::abort();
    for (const ItemInfo& item : c.items) {
      if (item.bytes < 1 || item.bytes > kMaxItemBytes) std::abort();
    }
    if (!c.active_blocks.empty() &&
        c.active_blocks.size() != size_t{m->geometry.layers} * m->geometry.kv_heads) {
      std::abort();
    }
  }
  const auto again = FromProto(ToProto(*m, message.name()));
  if (!again.ok() || again->context_id != m->context_id || again->tokens != m->tokens ||
      again->columns.size() != m->columns.size()) {
    std::abort();
  }
  return 0;
}

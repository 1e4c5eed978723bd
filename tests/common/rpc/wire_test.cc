#include "common/rpc/wire.h"

#include <functional>

#include "common/codec/format.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

static_assert(kMaxWireItemBytes == kMaxItemBytes);
static_assert(kMaxWirePlanes == kMaxPlanes);

// 1030 tokens: a full column and one of 6.
Manifest Sample() {
  Manifest m;
  m.model_fingerprint[0] = 1;
  m.codec_digest[0] = 2;
  m.codec = "generic";
  m.geometry = {2, 3, 64, KvDtype::kF16};
  m.planes = 3;
  for (int i = 0; i < 1030; ++i) m.tokens.push_back(i);
  for (uint32_t t = 0; t < 2; ++t) {
    ManifestColumn c;
    c.key[0] = static_cast<uint8_t>(10 + t);
    c.tokens = ColumnTokens(1030, t);
    for (uint32_t i = 0; i < 6; ++i) c.items.push_back({100 + i, 7 * i});
    if (t == 0) c.active_blocks = {1, 2, 3, 4, 5, 6};
    m.columns.push_back(c);
  }
  m.context_id = m.columns.back().key;
  return m;
}

TEST_CASE("A manifest survives the way over the wire") {
  Manifest in = Sample();
  CHECK_FALSE(FromProto(ToProto(in))->profile_digest.has_value());
  CHECK_FALSE(FromProto(ToProto(in))->needs_streamed_base);
  in.profile_digest = Digest{7};
  in.needs_streamed_base = true;
  const v1::Manifest proto = ToProto(in, "a name");
  CHECK(proto.name() == "a name");
  v1::Manifest parsed;
  REQUIRE(parsed.ParseFromString(proto.SerializeAsString()));
  const auto out = FromProto(parsed);
  REQUIRE_OK(out);
  CHECK(out->context_id == in.context_id);
  CHECK(out->model_fingerprint == in.model_fingerprint);
  CHECK(out->codec_digest == in.codec_digest);
  CHECK(out->codec == in.codec);
  CHECK(out->profile_digest == in.profile_digest);
  CHECK(out->needs_streamed_base);
  CHECK(out->geometry == in.geometry);
  CHECK(out->tokens == in.tokens);
  REQUIRE(out->columns.size() == 2);
  for (uint32_t t = 0; t < 2; ++t) {
    CHECK(out->columns[t].key == in.columns[t].key);
    CHECK(out->columns[t].tokens == in.columns[t].tokens);
    CHECK(out->columns[t].active_blocks == in.columns[t].active_blocks);
    for (uint32_t l = 0; l < 2; ++l) {
      for (uint32_t p = 0; p < 3; ++p) {
        CHECK(out->item(t, l, p).bytes == in.item(t, l, p).bytes);
        CHECK(out->item(t, l, p).crc32c == in.item(t, l, p).crc32c);
      }
    }
  }
}

TEST_CASE("Each hostile field of a manifest is refused by name") {
  struct Row {
    const char* field;
    std::function<void(v1::Manifest*)> break_it;
  };
  const std::vector<Row> rows = {
      {"context_id", [](v1::Manifest* m) { m->set_context_id("short"); }},
      {"context_id", [](v1::Manifest* m) { m->set_context_id(std::string(33, 'a')); }},
      {"context_id", [](v1::Manifest* m) { m->set_context_id(std::string(32, 'a')); }},
      {"model_fingerprint", [](v1::Manifest* m) { m->clear_model_fingerprint(); }},
      {"codec_digest", [](v1::Manifest* m) { m->set_codec_digest("x"); }},
      {"profile_digest", [](v1::Manifest* m) { m->set_profile_digest(std::string(31, 'x')); }},
      {"codec:", [](v1::Manifest* m) { m->clear_codec(); }},
      {"codec:", [](v1::Manifest* m) { m->set_codec(std::string(65, 'x')); }},
      {"geometry.layers", [](v1::Manifest* m) { m->mutable_geometry()->set_layers(0); }},
      {"geometry.layers", [](v1::Manifest* m) { m->mutable_geometry()->set_layers(4294967295u); }},
      {"geometry.kv_heads", [](v1::Manifest* m) { m->mutable_geometry()->set_kv_heads(1025); }},
      {"geometry.head_dim", [](v1::Manifest* m) { m->mutable_geometry()->set_head_dim(0); }},
      {"geometry.dtype", [](v1::Manifest* m) { m->mutable_geometry()->set_dtype(3); }},
      {"geometry", [](v1::Manifest* m) { m->clear_geometry(); }},
      {"planes", [](v1::Manifest* m) { m->set_planes(0); }},
      {"planes", [](v1::Manifest* m) { m->set_planes(17); }},
      {"tokens: length", [](v1::Manifest* m) { m->clear_tokens(); }},
      {"tokens[5]", [](v1::Manifest* m) { m->set_tokens(5, -1); }},
      {"columns[1].tokens", [](v1::Manifest* m) { m->add_tokens(1); }},
      {"columns: got 1", [](v1::Manifest* m) { m->mutable_columns()->RemoveLast(); }},
      {"columns: got 3", [](v1::Manifest* m) { m->add_columns(); }},
      {"columns[0].key", [](v1::Manifest* m) { m->mutable_columns(0)->set_key(""); }},
      {"columns[0].tokens", [](v1::Manifest* m) { m->mutable_columns(0)->set_tokens(1023); }},
      {"columns[1].tokens", [](v1::Manifest* m) { m->mutable_columns(1)->set_tokens(0); }},
      {"columns[0].items: got 5",
       [](v1::Manifest* m) { m->mutable_columns(0)->mutable_items()->RemoveLast(); }},
      {"columns[1].items: got 7",
       [](v1::Manifest* m) { m->mutable_columns(1)->add_items()->set_bytes(1); }},
      {"columns[0].items[4].bytes",
       [](v1::Manifest* m) { m->mutable_columns(0)->mutable_items(4)->set_bytes(0); }},
      {"columns[0].items[0].bytes",
       [](v1::Manifest* m) {
         m->mutable_columns(0)->mutable_items(0)->set_bytes(kMaxWireItemBytes + 1);
       }},
      {"columns[0].active_blocks: got 5",
       [](v1::Manifest* m) { m->mutable_columns(0)->mutable_active_blocks()->RemoveLast(); }},
      {"columns[0].active_blocks",
       [](v1::Manifest* m) { m->mutable_columns(0)->set_active_blocks(0, 1u << 31); }},
  };
  for (const Row& row : rows) {
    v1::Manifest m = ToProto(Sample());
    row.break_it(&m);
    const absl::Status status = FromProto(m).status();
    INFO(row.field << " -> " << status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(row.field) != std::string::npos);
  }
}

}  // namespace
}  // namespace sparkv

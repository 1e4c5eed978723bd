// The real model behind the server: precomputed K/V equals the engine's own, and stays so after an
// interruption.
#include "server/llm_prefiller.h"

#include <iostream>

#include "common/base/bytes.h"
#include "server/precompute.h"
#include "tests/catch.h"
#include "tests/server/store_fixture.h"
#include "tests/testing/paths.h"

namespace sparkv {
namespace {

TEST_CASE("A context precomputed by the real model holds the decoder's K/V, bit for bit") {
  SPARKV_NEED_MODEL();
  const auto model = Model::Load(testing::TestModel());
  REQUIRE_OK(model);
  LlmPrefiller prefiller(*model, {});
  CHECK(prefiller.vocabulary() == 49152);
  CHECK(prefiller.geometry().layers == 30);
  CHECK(absl::IsInvalidArgument(prefiller.Tokenize("", /*raw=*/true, "", nullptr).status()));
  const auto raw =
      prefiller.Tokenize("The quick brown fox jumps over the lazy dog.", /*raw=*/true, "", nullptr);
  const auto chat = prefiller.Tokenize("The quick brown fox jumps over the lazy dog.",
                                       /*raw=*/false, "Be brief.", nullptr);
  REQUIRE_OK(raw);
  REQUIRE_OK(chat);
  CHECK(chat->size() > raw->size());
  CHECK((*chat)[0] == 1);  // <|im_start|>

  testing::TempFolder folder;
  auto store = testing::OpenStore(folder.path());
  const auto codecs = ServerCodecs::Create({}, prefiller, "");
  REQUIRE_OK(codecs);
  Precomputer precomputer(store.get(), &prefiller, codecs->get(), {});
  const auto record =
      precomputer.Run({*chat, "f16", "fox"}, [](const PrecomputeProgressInfo&) { return true; });
  REQUIRE_OK(record);

  auto pool = KvPagePool::Create(prefiller.geometry(), uint64_t{1} << 26);
  REQUIRE_OK(pool);
  KvCache expected(*pool);
  Decoder decoder(*model, {});
  REQUIRE_OK(decoder.Prefill(*chat, &expected, nullptr));
  const auto reader = store->OpenContext(record->id);
  REQUIRE_OK(reader);
  const Manifest& m = (*reader)->manifest();
  REQUIRE(m.columns.size() == 1);
  const BlockShape shape{m.geometry.kv_heads, m.columns[0].tokens, m.geometry.head_dim};
  std::vector<uint16_t> k(shape.elements()), v(shape.elements()), want_k(shape.elements()),
      want_v(shape.elements());
  for (uint32_t layer = 0; layer < m.geometry.layers; ++layer) {
    const auto item = (*reader)->ReadItem(0, layer, 0);
    REQUIRE_OK(item);
    const std::span<const uint8_t> view = AsBytes(*item);
    REQUIRE_OK(
        FindDecoder("f16").value()->DecodeBlock(shape, std::span(&view, 1), k.data(), v.data()));
    REQUIRE_OK(expected.ExportBlock(layer, 0, shape.tokens, want_k.data(), want_v.data()));
    CHECK(k == want_k);
    CHECK(v == want_v);
  }
}

}  // namespace
}  // namespace sparkv

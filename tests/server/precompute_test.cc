#include "server/precompute.h"

#include <cmath>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/bytes.h"
#include "common/codec/column_decode.h"
#include "tests/catch.h"
#include "tests/server/fake_prefiller.h"

namespace sparkv {
namespace {

using testing::Codecs;
using testing::ExpectedKv;
using testing::FakePrefiller;
using testing::OpenStore;
using testing::TempFolder;
using testing::TestTokens;

const auto kGoOn = [](const PrecomputeProgressInfo&) { return true; };

// Every stored block, decoded with all planes, equals one uninterrupted prefill, bit for bit (f16
// codec).
void CheckStored(Store* store, const Digest& id, const std::vector<int32_t>& tokens) {
  const KvCache expected = ExpectedKv(tokens);
  const auto reader = store->OpenContext(id);
  REQUIRE_OK(reader);
  const Manifest& m = (*reader)->manifest();
  CHECK(m.tokens == tokens);
  const BlockDecoder* decoder = FindDecoder(m.codec).value();
  for (uint32_t t = 0; t < m.columns.size(); ++t) {
    const BlockShape shape{m.geometry.kv_heads, m.columns[t].tokens, m.geometry.head_dim};
    std::vector<uint16_t> k(shape.elements()), v(shape.elements()), want_k(shape.elements()),
        want_v(shape.elements());
    for (uint32_t l = 0; l < m.geometry.layers; ++l) {
      std::vector<std::string> planes;
      std::vector<std::span<const uint8_t>> views;
      for (uint32_t p = 0; p < m.planes; ++p) {
        auto item = (*reader)->ReadItem(t, l, p);
        REQUIRE_OK(item);
        planes.push_back(*std::move(item));
      }
      for (const std::string& plane : planes) views.push_back(AsBytes(plane));
      REQUIRE_OK(decoder->DecodeBlock(shape, views, k.data(), v.data()));
      REQUIRE_OK(
          expected.ExportBlock(l, t * kColumnTokens, shape.tokens, want_k.data(), want_v.data()));
      CHECK(k == want_k);
      CHECK(v == want_v);
    }
  }
}

TEST_CASE("A precomputed context holds the K/V of one prefill, bit for bit") {
  for (const uint32_t n : {1u, 1023u, 1024u, 1025u, 2500u}) {
    TempFolder folder;
    auto store = OpenStore(folder.path());
    FakePrefiller fake;
    Precomputer precomputer(store.get(), &fake, &Codecs(), {});
    const std::vector<int32_t> tokens = TestTokens(5, n);
    const auto record = precomputer.Run({tokens, "f16", "name"}, kGoOn);
    REQUIRE_OK(record);
    CHECK(record->token_count == n);
    CHECK(record->name == "name");
    CHECK(record->stored_bytes > 0);
    REQUIRE(record->level_bytes.size() == 1);
    CHECK(record->level_bytes[0] > 0);
    CHECK(record->level_bytes[0] < record->stored_bytes);
    CheckStored(store.get(), record->id, tokens);
    // Again: nothing is computed.
    const uint32_t before = fake.prefilled;
    const auto again = precomputer.Run({tokens, "f16", ""}, kGoOn);
    REQUIRE_OK(again);
    CHECK(again->id == record->id);
    CHECK(again->name == "name");
    CHECK(fake.prefilled == before);
  }
}

TEST_CASE("The generic codec's context has the level sizes of its planes") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  const auto record = precomputer.Run({TestTokens(5, 1100), "generic", ""}, kGoOn);
  REQUIRE_OK(record);
  const auto reader = store->OpenContext(record->id);
  REQUIRE_OK(reader);
  const Manifest& m = (*reader)->manifest();
  REQUIRE(record->level_bytes.size() == m.planes);
  for (uint32_t n = 1; n <= m.planes; ++n) {
    uint64_t sum = 0;
    for (uint32_t t = 0; t < 2; ++t) {
      for (uint32_t l = 0; l < 2; ++l) sum += m.BlockBytes(t, l, n);
    }
    CHECK(record->level_bytes[n - 1] == sum);
  }
}

TEST_CASE("Requests out of range are refused by name") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {.kv_budget_bytes = 64 * 32 * 20});
  CHECK(absl::IsInvalidArgument(precomputer.Run({{}, "f16", ""}, kGoOn).status()));
  CHECK(absl::IsInvalidArgument(precomputer.Run({TestTokens(1, 8193), "f16", ""}, kGoOn).status()));
  CHECK(precomputer.Run({{1, 50000}, "f16", ""}, kGoOn).status().message() ==
        "tokens[1]: got 50000, allowed: 0..49999");
  CHECK(absl::IsInvalidArgument(precomputer.Run({{-1}, "f16", ""}, kGoOn).status()));
  CHECK(absl::IsFailedPrecondition(precomputer.Run({{1}, "zip", ""}, kGoOn).status()));
  CHECK(
      absl::IsResourceExhausted(precomputer.Run({TestTokens(1, 8000), "f16", ""}, kGoOn).status()));
  CHECK(store->Usage().columns == 0);
}

TEST_CASE(
    "An abandoned precompute keeps its finished columns and resumes at the first missing one") {
  for (const std::string codec : {"f16", "generic"}) {
    TempFolder folder;
    auto store = OpenStore(folder.path());
    FakePrefiller fake;
    const std::vector<int32_t> tokens = TestTokens(5, 4000);
    {
      Precomputer precomputer(store.get(), &fake, &Codecs(), {});
      absl::Notification gone;
      // The third column begins when the first is stored (the second is handed over only then). The
      // caller leaves there.
      fake.on_prefill = [&](uint32_t begin) {
        if (begin == 2048) gone.WaitForNotification();
      };
      const auto result =
          precomputer.Run({tokens, codec, ""}, [&](const PrecomputeProgressInfo& p) {
            if (p.tokens_done < 2048) return true;
            return false;
          });
      CHECK(absl::IsCancelled(result.status()));
      gone.Notify();
    }
    fake.on_prefill = nullptr;
    const uint64_t kept = store->Usage().columns;
    CHECK(kept >= 1);
    CHECK(kept <= 2);
    CHECK(store->Usage().contexts == 0);
    fake.prefilled = 0;
    Precomputer precomputer(store.get(), &fake, &Codecs(), {});
    uint32_t reused = 0;
    const auto record = precomputer.Run({tokens, codec, ""}, [&](const PrecomputeProgressInfo& p) {
      reused = std::max(reused, p.tokens_reused);
      return true;
    });
    REQUIRE_OK(record);
    CHECK(reused == kept * 1024);
    // Lossless K/V is read back; lossy is computed again, so that the result does not depend on the
    // interruption.
    CHECK(fake.prefilled == (codec == "f16" ? 4000 - kept * 1024 : 4000));
    if (codec == "f16") CheckStored(store.get(), record->id, tokens);
    // The same bytes as without an interruption.
    TempFolder other;
    auto fresh = OpenStore(other.path());
    FakePrefiller fake2;
    Precomputer straight(fresh.get(), &fake2, &Codecs(), {});
    REQUIRE_OK(straight.Run({tokens, codec, ""}, kGoOn));
    const auto a = store->OpenContext(record->id);
    const auto b = fresh->OpenContext(record->id);
    REQUIRE_OK(a);
    REQUIRE_OK(b);
    for (uint32_t t = 0; t < 4; ++t) {
      CHECK(store->ReadColumn((*a)->manifest().columns[t].key).value() ==
            fresh->ReadColumn((*b)->manifest().columns[t].key).value());
    }
  }
}

TEST_CASE("The active blocks that a prefill measures are in the manifest, column by column") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  const auto record = precomputer.Run({TestTokens(9, 2500), "f16", ""}, kGoOn);
  REQUIRE_OK(record);
  const auto reader = store->OpenContext(record->id);
  REQUIRE_OK(reader);
  const Manifest& m = (*reader)->manifest();
  REQUIRE(m.columns.size() == 3);
  for (uint32_t t = 0; t < 3; ++t) {
    const std::vector<uint16_t> want = fake.ActiveBlocks(t * kColumnTokens);
    CHECK(m.columns[t].active_blocks == std::vector<uint32_t>(want.begin(), want.end()));
  }
}

TEST_CASE("A context that extends a stored one computes only its own columns") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  std::vector<int32_t> tokens = TestTokens(5, 2048);
  REQUIRE_OK(precomputer.Run({tokens, "f16", "short"}, kGoOn));
  fake.prefilled = 0;
  tokens.resize(2300, 42);
  const auto longer = precomputer.Run({tokens, "f16", "long"}, kGoOn);
  REQUIRE_OK(longer);
  CHECK(fake.prefilled == 252);
  CheckStored(store.get(), longer->id, tokens);
}

TEST_CASE("A stored column that is damaged is computed again") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  std::vector<int32_t> tokens = TestTokens(5, 2048);
  const auto first = precomputer.Run({tokens, "f16", ""}, kGoOn);
  REQUIRE_OK(first);
  const std::string path = testing::FileOf(folder.path(), store->GetContext(first->id)->columns[0]);
  {
    std::FILE* f = std::fopen(path.c_str(), "r+b");
    REQUIRE(f != nullptr);
    std::fseek(f, -1, SEEK_END);
    const int c = std::fgetc(f);
    std::fseek(f, -1, SEEK_END);
    std::fputc(c ^ 1, f);
    std::fclose(f);
  }
  tokens.resize(2100, 42);
  const auto longer = precomputer.Run({tokens, "f16", ""}, kGoOn);
  REQUIRE_OK(longer);
  CheckStored(store.get(), longer->id, tokens);
}

TEST_CASE("Two equal requests share one run, and the run ends only when the last has left") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  absl::Notification joined;
  fake.on_prefill = [&](uint32_t) { joined.WaitForNotification(); };
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  const std::vector<int32_t> tokens = TestTokens(5, 1500);
  std::atomic<int> waiting = 0;
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      bool counted = false;
      results[i] = precomputer
                       .Run({tokens, "f16", ""},
                            [&](const PrecomputeProgressInfo&) {
                              if (!counted && ++waiting == 3) joined.Notify();
                              counted = true;
                              return i != 0;  // the first gives up
                            })
                       .status();
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(absl::IsCancelled(results[0]));
  CHECK(results[1].ok());
  CHECK(results[2].ok());
  CHECK(fake.prefilled == 1500);
}

TEST_CASE("Stop ends waiting and running precomputes with Unavailable") {
  TempFolder folder;
  auto store = OpenStore(folder.path());
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  absl::Notification running;
  absl::Notification stopped;
  fake.on_prefill = [&](uint32_t begin) {
    if (begin != 0) return;
    running.Notify();
    stopped.WaitForNotification();
  };
  std::vector<absl::Status> results(2);
  std::thread first([&] {
    results[0] = precomputer.Run({TestTokens(5, 1500), "f16", ""}, kGoOn).status();
  });
  running.WaitForNotification();
  std::thread second([&] {
    results[1] = precomputer.Run({TestTokens(900, 1500), "f16", ""}, kGoOn).status();
  });
  while (precomputer.pending() < 2) std::this_thread::yield();
  precomputer.Stop();
  stopped.Notify();
  first.join();
  second.join();
  CHECK(absl::IsUnavailable(results[0]));
  CHECK(absl::IsUnavailable(results[1]));
  CHECK(absl::IsUnavailable(precomputer.Run({{1}, "f16", ""}, kGoOn).status()));
}

TEST_CASE("A disk without room ends a precompute with ResourceExhausted, and the next one works") {
  TempFolder folder;
  auto store = OpenStore(folder.path(), 20000);
  FakePrefiller fake;
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  const auto big = precomputer.Run({TestTokens(5, 8000), "f16", ""}, kGoOn);
  CHECK(absl::IsResourceExhausted(big.status()));
  CHECK(store->Usage().used_bytes <= 20000);
  REQUIRE_OK(precomputer.Run({TestTokens(7, 100), "f16", ""}, kGoOn));
}

TEST_CASE(
    "With a profile whole columns are predicted, and resuming gives the same bytes as one run") {
  TempFolder folder;
  FakePrefiller fake(testing::kWideGeometry);
  testing::ServedProfileOptions options = testing::FakeProfile();
  const std::string file = testing::FileWith(folder, "profile", testing::ServedProfile(options));
  const auto codecs = ServerCodecs::Create({file}, fake, "");
  REQUIRE_OK(codecs);
  const ServerCodec* codec = (*codecs)->Find("aatc-pred").value();
  auto store = OpenStore(folder.path() + "/store");
  Precomputer precomputer(store.get(), &fake, codecs->get(), {.encode_threads = 3});
  const std::vector<int32_t> tokens = TestTokens(5, 2100);
  // The first column alone, then the rest.
  REQUIRE_OK(precomputer.Run({{tokens.begin(), tokens.begin() + 1024}, "aatc-pred", ""}, kGoOn));
  const auto record = precomputer.Run({tokens, "aatc-pred", "name"}, kGoOn);
  REQUIRE_OK(record);
  REQUIRE(record->profile_digest.has_value());
  CHECK(*record->profile_digest == codec->profile->digest());
  CHECK(record->codec_digest == CodecDigest(codec->info(), &*record->profile_digest));
  const auto reader = store->OpenContext(record->id);
  REQUIRE_OK(reader);
  const Manifest& m = (*reader)->manifest();
  CHECK(m.profile_digest == record->profile_digest);
  CHECK(m.planes == 5);
  CHECK(m.item(0, 0, 0).bytes == 2);  // layer 0 is never sent
  CHECK_FALSE(m.needs_streamed_base);

  auto straight_store = OpenStore(folder.path() + "/straight");
  FakePrefiller fake2(testing::kWideGeometry);
  Precomputer straight(straight_store.get(), &fake2, codecs->get(), {});
  const auto once = straight.Run({tokens, "aatc-pred", ""}, kGoOn);
  REQUIRE_OK(once);
  for (const Digest& key : once->columns) {
    CHECK(*store->ReadColumn(key) == *straight_store->ReadColumn(key));
  }

  // All planes, finished: near what prefill gave.
  const KvCache expected = ExpectedKv(tokens, testing::kWideGeometry);
  auto pool = KvPagePool::Create(testing::kWideGeometry, uint64_t{1} << 25).value();
  KvCache cache(pool);
  REQUIRE_OK(cache.Extend(1024));
  const uint32_t row = testing::kWideGeometry.row();
  std::vector<float> k(1024 * row), v(1024 * row), got(1024 * row);
  expected.ReadRows(0, KvSide::kK, 0, 1024, k.data(), 16);
  expected.ReadRows(0, KvSide::kV, 0, 1024, v.data(), 16);
  const auto import = [&](uint32_t layer) {
    const BlockShape shape{2, 1024, 16};
    std::vector<uint16_t> hk(shape.elements()), hv(shape.elements());
    REQUIRE_OK(expected.ExportBlock(layer, 0, 1024, hk.data(), hv.data()));
    cache.ImportBlock(layer, 0, 1024, hk.data(), hv.data());
  };
  import(0);
  std::vector<std::string> items;
  std::vector<std::vector<std::span<const uint8_t>>> blocks(3);
  for (uint32_t l = 0; l < 3; ++l) {
    for (uint32_t p = 0; p < 5; ++p) items.push_back((*reader)->ReadItem(0, l, p).value());
  }
  for (size_t i = 0; i < items.size(); ++i) blocks[i / 5].push_back(AsBytes(items[i]));
  REQUIRE_OK(DecodeColumn(nullptr, codec->residual_decoder.get(), blocks, 0,
                          std::span(tokens).subspan(0, 1024), nullptr, &cache));
  for (const KvSide side : {KvSide::kK, KvSide::kV}) {
    expected.ReadRows(2, side, 0, 1024, k.data(), 16);
    cache.ReadRows(2, side, 0, 1024, got.data(), 16);
    float worst = 0;
    for (size_t i = 0; i < k.size(); ++i) worst = std::max(worst, std::abs(k[i] - got[i]));
    CHECK(worst < 3);
  }
}

TEST_CASE("A context whose predictions carry errors upwards says so in its manifest") {
  TempFolder folder;
  FakePrefiller fake(testing::kWideGeometry);
  testing::ServedProfileOptions options = testing::FakeProfile();
  auto store = OpenStore(folder.path() + "/store");
  for (const float most : {0.1f, 2.0f}) {
    options.most_predict = most;
    const std::string file = testing::FileWith(folder, "profile", testing::ServedProfile(options));
    const auto codecs = ServerCodecs::Create({file}, fake, "");
    REQUIRE_OK(codecs);
    Precomputer precomputer(store.get(), &fake, codecs->get(), {});
    const auto record = precomputer.Run({TestTokens(5, 1100), "aatc-pred", ""}, kGoOn);
    REQUIRE_OK(record);
    const auto reader = store->OpenContext(record->id);
    REQUIRE_OK(reader);
    CHECK((*reader)->manifest().needs_streamed_base == (most > 1));
  }
}

TEST_CASE("Another profile makes another context, and a codec without its profile is refused") {
  TempFolder folder;
  FakePrefiller fake(testing::kWideGeometry);
  testing::ServedProfileOptions options = testing::FakeProfile();
  auto store = OpenStore(folder.path() + "/store");
  std::set<Digest> ids;
  for (const uint64_t seed : {1, 2}) {
    options.seed = seed;
    const std::string file = testing::FileWith(folder, "profile", testing::ServedProfile(options));
    const auto codecs = ServerCodecs::Create({file}, fake, "");
    REQUIRE_OK(codecs);
    Precomputer precomputer(store.get(), &fake, codecs->get(), {});
    const auto record = precomputer.Run({TestTokens(5, 50), "aatc-pred", ""}, kGoOn);
    REQUIRE_OK(record);
    ids.insert(record->id);
  }
  CHECK(ids.size() == 2);
  // Both can still be read by who has the profile.
  for (const Digest& id : ids) REQUIRE_OK(testing::ReadWhole(store.get(), id));
  Precomputer precomputer(store.get(), &fake, &Codecs(), {});
  CHECK(absl::IsFailedPrecondition(
      precomputer.Run({TestTokens(5, 50), "aatc-pred", ""}, kGoOn).status()));
}

}  // namespace
}  // namespace sparkv

#include "edge/kv_residency.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

constexpr KvGeometry kGeometry{.layers = 1, .kv_heads = 1, .head_dim = 4, .dtype = KvDtype::kF16};
constexpr uint64_t kPageBytes = 1 * 2 * 1 * kPageTokens * 4 * 2;

std::shared_ptr<KvPagePool> Pool(uint64_t pages) {
  auto pool = KvPagePool::Create(kGeometry, pages * kPageBytes);
  REQUIRE(pool.ok());
  REQUIRE((*pool)->page_bytes() == kPageBytes);
  return *pool;
}

HeldKv Held(const std::shared_ptr<KvPagePool>& pool, uint32_t tokens) {
  HeldKv held{std::make_unique<KvCache>(pool)};
  REQUIRE(held.cache->Extend(tokens).ok());
  return held;
}

TEST_CASE("the least recently used entry goes first") {
  KvResidency kv(Pool(4));
  kv.Put("c:a", Held(kv.pool(), 64));
  kv.Put("c:b", Held(kv.pool(), 64));
  kv.Put("c:c", Held(kv.pool(), 64));
  REQUIRE(kv.Find("c:a") != nullptr);  // b is the oldest now
  REQUIRE(kv.MakeRoom(100, "").ok());  // two pages: one is free
  CHECK(kv.Contains("c:a"));
  CHECK_FALSE(kv.Contains("c:b"));
  CHECK(kv.Contains("c:c"));
}

TEST_CASE("an entry in use is never evicted") {
  KvResidency kv(Pool(3));
  kv.Put("c:used", Held(kv.pool(), 128));
  kv.Put("c:other", Held(kv.pool(), 64));
  const absl::Status status = kv.MakeRoom(129, "c:used");
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(kv.Contains("c:used"));
  REQUIRE(kv.MakeRoom(64, "c:used").ok());
}

TEST_CASE("what can never fit evicts nothing") {
  KvResidency kv(Pool(3));
  kv.Put("c:a", Held(kv.pool(), 64));
  const absl::Status status = kv.MakeRoom(193, "");
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(status.message()).find("kv_budget_bytes") != std::string::npos);
  CHECK(kv.Contains("c:a"));
}

TEST_CASE("pages that another entry shares are not counted as freed") {
  KvResidency kv(Pool(4));
  kv.Put("c:a", Held(kv.pool(), 128));
  HeldKv session{std::make_unique<KvCache>(kv.pool())};
  REQUIRE(session.cache->SharePrefix(*kv.Find("c:a")->cache, 128).ok());
  REQUIRE(session.cache->Extend(129).ok());
  kv.Put("s:x", std::move(session));
  CHECK(kv.pool()->used_bytes() == 3 * kPageBytes);
  REQUIRE(kv.MakeRoom(64, "").ok());
  CHECK(kv.Contains("c:a"));
  // The context alone frees nothing: the session goes too.
  REQUIRE(kv.MakeRoom(4 * 64, "").ok());
  CHECK(kv.Count("c:") == 0);
  CHECK(kv.Count("s:") == 0);
  CHECK(kv.pool()->used_bytes() == 0);
}

TEST_CASE("putting an entry again replaces it") {
  KvResidency kv(Pool(4));
  kv.Put("c:a", Held(kv.pool(), 128));
  kv.Put("c:a", Held(kv.pool(), 64));
  CHECK(kv.Count("c:") == 1);
  CHECK(kv.Find("c:a")->cache->tokens() == 64);
  kv.Drop("c:a");
  CHECK(kv.Find("c:a") == nullptr);
  CHECK(kv.pool()->used_bytes() == 0);
}

}  // namespace
}  // namespace sparkv

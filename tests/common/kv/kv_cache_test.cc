#include "common/kv/kv_cache.h"

#include <vector>

#include "kernels/half.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

constexpr KvGeometry kSmall{2, 2, 4, KvDtype::kF16};

std::shared_ptr<KvPagePool> Pool(const KvGeometry& g, uint32_t pages) {
  auto pool = KvPagePool::Create(g, g.token_bytes() * kPageTokens * pages);
  REQUIRE_OK(pool);
  return *pool;
}

// Row values that name (side, layer, token, element).
std::vector<float> Rows(KvSide side, uint32_t layer, uint32_t begin, uint32_t n) {
  std::vector<float> rows;
  for (uint32_t t = begin; t < begin + n; ++t) {
    for (uint32_t i = 0; i < kSmall.row(); ++i) {
      rows.push_back(static_cast<float>(t * 8 + i) * 0.25f + (side == KvSide::kV ? -500.0f : 0.0f) +
                     static_cast<float>(layer) * 100.0f);
    }
  }
  return rows;
}

TEST_CASE("rows written across pages are read back in head order") {
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kF32}) {
    KvGeometry g = kSmall;
    g.dtype = dtype;
    KvCache cache(Pool(g, 4));
    REQUIRE_OK(cache.Extend(150));
    for (uint32_t layer = 0; layer < 2; ++layer) {
      const auto k = Rows(KvSide::kK, layer, 50, 90);
      const auto v = Rows(KvSide::kV, layer, 50, 90);
      cache.WriteRows(layer, 50, 90, k.data(), v.data(), kSmall.row());
    }
    std::vector<float> out(2 * 90 * 4);
    cache.ReadRows(1, KvSide::kV, 50, 90, out.data(), 90 * 4);
    const auto v = Rows(KvSide::kV, 1, 50, 90);
    for (uint32_t h = 0; h < 2; ++h) {
      for (uint32_t t = 0; t < 90; ++t) {
        for (uint32_t i = 0; i < 4; ++i) REQUIRE(out[(h * 90 + t) * 4 + i] == v[t * 8 + h * 4 + i]);
      }
    }
  }
}

TEST_CASE("an exported block imported elsewhere has equal bits") {
  auto pool = Pool(kSmall, 8);
  KvCache a(pool);
  REQUIRE_OK(a.Extend(100));
  const auto k = Rows(KvSide::kK, 0, 0, 100);
  const auto v = Rows(KvSide::kV, 0, 0, 100);
  a.WriteRows(0, 0, 100, k.data(), v.data(), kSmall.row());
  std::vector<uint16_t> ek(2 * 70 * 4), ev(2 * 70 * 4), fk(ek.size()), fv(ev.size());
  REQUIRE_OK(a.ExportBlock(0, 30, 70, ek.data(), ev.data()));
  CHECK(ek[0] == kernels::FloatToHalf(k[30 * 8]));
  KvCache b(pool);
  REQUIRE_OK(b.Extend(100));
  b.ImportBlock(0, 30, 70, ek.data(), ev.data());
  REQUIRE_OK(b.ExportBlock(0, 30, 70, fk.data(), fv.data()));
  CHECK(ek == fk);
  CHECK(ev == fv);
}

TEST_CASE("a prefix shares full pages and copies the partial one") {
  auto pool = Pool(kSmall, 8);
  KvCache a(pool);
  REQUIRE_OK(a.Extend(130));
  const auto k = Rows(KvSide::kK, 0, 0, 130);
  a.WriteRows(0, 0, 130, k.data(), k.data(), kSmall.row());
  const uint64_t before = pool->used_bytes();
  KvCache b(pool);
  REQUIRE_OK(b.SharePrefix(a, 130));
  CHECK(pool->used_bytes() == before + pool->page_bytes());
  CHECK(b.PageData(0, 0, KvSide::kK, 0) == a.PageData(0, 0, KvSide::kK, 0));
  CHECK(b.PageData(2, 0, KvSide::kK, 0) != a.PageData(2, 0, KvSide::kK, 0));
  // Writing after the prefix leaves the original alone.
  REQUIRE_OK(b.Extend(131));
  const std::vector<float> nine(8, 9.0f);
  b.WriteRows(0, 129, 1, nine.data(), nine.data(), 8);
  std::vector<float> out(8);
  a.ReadRows(0, KvSide::kK, 129, 1, out.data(), 4);
  CHECK(out[0] == k[129 * 8]);
  CHECK_FALSE(b.SharePrefix(a, 1).ok());
  KvCache c(pool);
  CHECK_FALSE(c.SharePrefix(a, 131).ok());
}

TEST_CASE("the budget is enforced, and pages return to the pool") {
  auto pool = Pool(kSmall, 2);
  {
    KvCache a(pool);
    REQUIRE_OK(a.Extend(64));
    const absl::Status full = a.Extend(200);
    CHECK(full.code() == absl::StatusCode::kResourceExhausted);
    CHECK(a.tokens() == 64);
    CHECK(a.pages() == 1);
    REQUIRE_OK(a.Extend(128));
    a.Truncate(10);
    CHECK(pool->used_bytes() == pool->page_bytes());
  }
  CHECK(pool->used_bytes() == 0);
  CHECK_FALSE(KvPagePool::Create(kSmall, 10).ok());
}

}  // namespace
}  // namespace sparkv

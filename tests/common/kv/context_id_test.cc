#include "common/kv/context_id.h"

#include <numeric>

#include "tests/catch.h"

namespace sparkv {
namespace {

std::vector<int32_t> Ids(size_t n) {
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 5);
  return ids;
}

TEST_CASE("contexts with a common prefix share the keys of its full columns") {
  const ContextIdentity identity;
  const std::vector<int32_t> longer = Ids(3000);
  const std::vector<int32_t> shorter(longer.begin(), longer.begin() + 2100);
  const auto a = ColumnKeys(identity, longer);
  const auto b = ColumnKeys(identity, shorter);
  REQUIRE(a.size() == 3);
  REQUIRE(b.size() == 3);
  CHECK(a[0] == b[0]);
  CHECK(a[1] == b[1]);
  CHECK(a[2] != b[2]);
  CHECK(ColumnKeys(identity, {}).empty());
}

TEST_CASE("a change in an early column changes every later key") {
  const ContextIdentity identity;
  std::vector<int32_t> ids = Ids(2048);
  const auto a = ColumnKeys(identity, ids);
  ids[0] += 1;
  const auto b = ColumnKeys(identity, ids);
  CHECK(a[0] != b[0]);
  CHECK(a[1] != b[1]);
}

TEST_CASE("each part of the identity changes the key") {
  const std::vector<int32_t> ids = Ids(10);
  const Digest base = ColumnKeys({}, ids).back();
  ContextIdentity other;
  other.model_fingerprint[3] = 1;
  CHECK(ColumnKeys(other, ids).back() != base);
  other = {};
  other.codec_digest[0] = 1;
  CHECK(ColumnKeys(other, ids).back() != base);
  other = {};
  other.prefill.attention = "sparse";
  CHECK(ColumnKeys(other, ids).back() != base);
  other = {};
  other.kv_dtype = KvDtype::kF32;
  CHECK(ColumnKeys(other, ids).back() != base);
  other = {};
  other.tenant_salt.assign(1, 't');
  CHECK(ColumnKeys(other, ids).back() != base);
}

}  // namespace
}  // namespace sparkv

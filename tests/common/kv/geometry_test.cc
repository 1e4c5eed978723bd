#include "common/kv/geometry.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("columns of a context: full ones, then the rest") {
  CHECK(ColumnCount(0) == 0);
  CHECK(ColumnCount(1) == 1);
  CHECK(ColumnCount(1024) == 1);
  CHECK(ColumnCount(1025) == 2);
  CHECK(ColumnTokens(1025, 0) == 1024);
  CHECK(ColumnTokens(1025, 1) == 1);
  CHECK(ColumnTokens(1, 0) == 1);
  CHECK(ColumnTokens(2048, 1) == 1024);
}

TEST_CASE("SmolLM2's f16 K/V is 23,040 bytes a token") {
  const KvGeometry g{30, 3, 64, KvDtype::kF16};
  CHECK(g.token_bytes() == 23040);
  CHECK(KvGeometry{30, 3, 64, KvDtype::kF32}.token_bytes() == 46080);
  CHECK(g.Validate().ok());
}

TEST_CASE("a geometry out of range is refused by the member's name") {
  const absl::Status status = KvGeometry{0, 3, 64}.Validate();
  CHECK(status.message() == "layers is 0, allowed: 1..1024");
  CHECK_FALSE(KvGeometry{1, 1025, 64}.Validate().ok());
  CHECK_FALSE(KvGeometry{1, 1, 4096}.Validate().ok());
  CHECK_FALSE(KvGeometry{1, 1, 1, static_cast<KvDtype>(7)}.Validate().ok());
}

}  // namespace
}  // namespace sparkv

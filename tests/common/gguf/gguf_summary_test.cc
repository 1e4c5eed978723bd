#include "common/gguf/gguf_summary.h"

#include <string>

#include "tests/catch.h"
#include "tests/common/gguf/gguf_bytes.h"

using sparkv::GgufSummary;
using sparkv::testing::GgufBytes;
using sparkv::testing::ParsedGguf;
using sparkv::testing::Raw;

TEST_CASE("the listing shows keys and tensors, shortened and printable") {
  const ParsedGguf parsed(GgufBytes()
                              .String("name", "line\nbreak " + std::string(500, 'x'))
                              .U32("count", 7)
                              .Bool("flag", false)
                              .F32("eps", 0.5f)
                              .Key("large", 10, Raw<uint64_t>(18446744073709551615u))
                              .Strings("tokens", {"a", "\x1b", "c", "d", "e", "f", "g", "h"})
                              .Array<int32_t>("types", 5, {1, -2})
                              .Array<float>("scores", 6, {0.25f})
                              .Array<uint8_t>("flags", 7, {1, 0})
                              .Tensor("weights", {64, 2, 3}, 3, 0)
                              .Data(std::string(240, 'x'))
                              .Build());
  REQUIRE_OK(parsed.reader);
  const std::string text = GgufSummary(**parsed.reader);
  INFO(text);
  for (const char* part :
       {"GGUF version 3, 9 keys, 1 tensors", "name = \"line\\nbreak xxx", "...\"\n", "count = 7",
        "flag = false", "eps = 0.5", "large = 18446744073709551615",
        "tokens = ARRAY of 8 STRING [\"a\", \"\\x1b\", \"c\", \"d\", \"e\", \"f\", ...]",
        "types = ARRAY of 2 INT32 [1, -2]", "scores = ARRAY of 1 FLOAT32 [0.25]",
        "flags = ARRAY of 2 BOOL\n", "Q4_1", "64 x 2 x 3", "240 bytes"}) {
    INFO("looking for: " << part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.size() < 1500);
}

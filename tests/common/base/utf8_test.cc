#include "common/base/utf8.h"

#include <string>

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("valid UTF-8 is what RFC 3629 says") {
  CHECK_FALSE(FindInvalidUtf8("plain, caf\xC3\xA9, \xE6\xAD\xAA, \xF0\x9F\x98\xB8"));
  CHECK_FALSE(FindInvalidUtf8(
      "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"));  // around the surrogates; the last one
  CHECK(FindInvalidUtf8("ab\xE6\xAD") == 2);
  for (const char* bad : {"\x80", "\xFF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) {
    CHECK(FindInvalidUtf8(bad) == 0);
  }
}

TEST_CASE("an unfinished character waits where it can") {
  std::string pending;
  CHECK(ToValidUtf8("a\xF0\x9F\x98", &pending) == "a");
  CHECK(pending == "\xF0\x9F\x98");
  CHECK(ToValidUtf8("a\xF0\x9F\x98") == "a\uFFFD");
}

}  // namespace
}  // namespace sparkv

#include "common/llm/detokenizer.h"
#include "common/base/utf8.h"

#include <random>

#include "tests/catch.h"
#include "tests/common/llm/text_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

const std::string kBad = "\xEF\xBF\xBD";

// What a stream of all ids gives; each chunk must be whole characters.
std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                   bool special = false) {
  Detokenizer stream(tokenizer, special);
  std::string out;
  for (const int32_t id : ids) {
    const std::string chunk = stream.Push(id);
    CHECK(ToValidUtf8(chunk) == chunk);
    out += chunk;
  }
  out += stream.Finish();
  CHECK(stream.Finish().empty());
  return out;
}

}  // namespace

TEST_CASE("a character that spans tokens comes whole (T6)") {
  // U+1F638 as F0 9F 98 and B8.
  VocabSpec spec = ByteVocab("gpt-2");
  spec.tokens.push_back(Alphabet("\xF0\x9F\x98"));
  spec.kinds.push_back(TokenKind::kNormal);
  const auto tokenizer = MakeTokenizer(std::move(spec));
  Detokenizer stream(*tokenizer);
  CHECK(stream.Push('x') == "x");
  CHECK(stream.Push(256).empty());
  CHECK(stream.Push(0xB8) == "\xF0\x9F\x98\xB8");
  CHECK(stream.Finish().empty());
  // The stream stops inside: one replacement, once.
  CHECK(stream.Push(256).empty());
  CHECK(stream.Finish() == kBad);
  CHECK(stream.Finish().empty());
  CHECK(stream.Push('y') == "y");
}

TEST_CASE("a bad byte never blocks the stream (T6)") {
  const auto tokenizer = MakeTokenizer(ByteVocab("gpt-2", {}, {"<|end|>"}));
  Detokenizer stream(*tokenizer);
  CHECK(stream.Push('a') == "a");
  CHECK(stream.Push(0xFF) == kBad);
  CHECK(stream.Push('b') == "b");
  CHECK(stream.Push(0xE6).empty());
  CHECK(stream.Push('c') == kBad + "c");
  CHECK(stream.Push(0xE6).empty());
  CHECK(stream.Push(0xAD).empty());
  CHECK(stream.Push(0xF0) == kBad);  // and a new character begins
  CHECK(stream.Push(0x9F).empty());
  CHECK(stream.Finish() == kBad);
  // Ids outside of the vocabulary have no text.
  CHECK(stream.Push(-1).empty());
  CHECK(stream.Push(1 << 30).empty());
}

TEST_CASE("special tokens are hidden unless asked for") {
  const auto tokenizer = MakeTokenizer(ByteVocab("gpt-2", {}, {"<|end|>"}));
  CHECK(Stream(*tokenizer, {'a', 256, 'b'}) == "ab");
  CHECK(Stream(*tokenizer, {'a', 256, 'b'}, true) == "a<|end|>b");
}

TEST_CASE("invalid sequences become one U+FFFD for each maximal part") {
  CHECK(ToValidUtf8("\x80") == kBad);
  CHECK(ToValidUtf8("\xC0\x80") == kBad + kBad);
  CHECK(ToValidUtf8("\xED\xA0\x80") == kBad + kBad + kBad);  // a surrogate
  CHECK(ToValidUtf8("\xE6\xAD") == kBad);
  CHECK(ToValidUtf8("\xF0\x9F\x98"
                    "a") == kBad + "a");
  CHECK(ToValidUtf8("\xF4\x90\x80\x80") == kBad + kBad + kBad + kBad);
  // Unicode 15, table 3-8.
  CHECK(ToValidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64") ==
        "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  CHECK(ToValidUtf8("\xF4\x8F\xBF\xBF\xEF\xBF\xBF") == "\xF4\x8F\xBF\xBF\xEF\xBF\xBF");
}

TEST_CASE("for every prefix the stream's text is the one-shot text (T6)") {
  const auto tokenizer = MakeTokenizer(GoldenVocab("qwen2"));
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) {
      // Mostly parts of characters.
      const bool part = rng() % 2 == 0;
      const std::string lead[] = {"\xF0", "\x9F", "\x98", "\xB8", "\xE6", "\xAD", "\xAA", "\xFF"};
      const auto byte = tokenizer->Encode(lead[rng() % 8], {});
      REQUIRE_OK(byte);
      ids.push_back(part ? byte->front() : static_cast<int32_t>(rng() % tokenizer->size()));
      CHECK(Stream(*tokenizer, ids) == ToValidUtf8(tokenizer->Decode(ids)));
    }
  }
}

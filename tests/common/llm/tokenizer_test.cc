#include "common/llm/tokenizer.h"

#include <random>

#include "tests/catch.h"
#include "tests/common/llm/text_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

using Ids = std::vector<int32_t>;

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const absl::StatusOr<Ids> ids = tokenizer.Encode(text, options);
  REQUIRE_OK(ids);
  return *ids;
}

std::vector<std::string> Pieces(const Tokenizer& tokenizer, std::string_view text) {
  const auto pieces = tokenizer.EncodePieces(text);
  REQUIRE_OK(pieces);
  return *pieces;
}

std::string Message(VocabSpec spec) {
  return std::string(Tokenizer::Create(std::move(spec)).status().message());
}

using Words = std::vector<std::string>;

Words PreWords(const std::string& pre, std::string_view text) {
  const auto tokenizer = MakeTokenizer(ByteVocab(pre));
  const std::vector<std::string_view> words = tokenizer->PreTokenize(text);
  return Words(words.begin(), words.end());
}

}  // namespace

TEST_CASE("the best-ranked pair merges first, not the leftmost (T8)") {
  // Left to right this would be "bru" "tal" "ist".
  const auto tokenizer = MakeTokenizer(
      ByteVocab("qwen2", {"i s", "is t", "a l", "b r", "u t", "br u", "t al", "al ist"}));
  CHECK(Pieces(*tokenizer, "brutalist") == Words{"br", "ut", "alist"});
}

TEST_CASE("of equal pairs the leftmost merges first") {
  const auto tokenizer = MakeTokenizer(ByteVocab("gpt-2", {"a a", "aa a"}));
  CHECK(Pieces(*tokenizer, "aaa") == Words{"aaa"});
  CHECK(Pieces(*tokenizer, "aaaaa") == Words{"aa", "aaa"});
  // The same rule in words too long for the scan.
  const std::vector<std::string> pieces = Pieces(*tokenizer, std::string(201, 'a'));
  REQUIRE(pieces.size() == 100);
  CHECK(pieces[98] == "aa");
  CHECK(pieces[99] == "aaa");
}

TEST_CASE("long and short words merge alike") {
  const VocabSpec spec = GoldenVocab("gpt-2");
  const auto tokenizer = MakeTokenizer(spec);
  std::mt19937 rng(3);
  for (int round = 0; round < 50; ++round) {
    // A letter that ends in no merge cuts the long word: its parts must encode as they do alone.
    std::string whole;
    Ids parts;
    for (int i = 0; i < 12; ++i) {
      std::string part;
      for (int k = 0; k < 7; ++k) part += "etaoinshr"[rng() % 9];
      part += "\xC9\x83";  // U+0243
      whole += part;
      const Ids ids = Encode(*tokenizer, part);
      parts.insert(parts.end(), ids.begin(), ids.end());
    }
    REQUIRE(whole.size() > 64);
    CHECK(Encode(*tokenizer, whole) == parts);
  }
}

TEST_CASE("llama-bpe takes a word that is a token whole, the others don't (T2)") {
  for (const std::string pre : {"llama-bpe", "qwen2", "smollm", "gpt-2"}) {
    VocabSpec spec = ByteVocab(pre, {Alphabet(" ") + " V", Alphabet(" V") + " i"});
    const auto word = static_cast<int32_t>(spec.tokens.size());
    spec.tokens.push_back(Alphabet(" Vi\xE1\xBB\x87t"));
    spec.kinds.push_back(TokenKind::kNormal);
    const auto tokenizer = MakeTokenizer(std::move(spec));
    const Ids ids = Encode(*tokenizer, " Vi\xE1\xBB\x87t");
    INFO(pre);
    if (pre == "llama-bpe") {
      CHECK(ids == Ids{word});
    } else {
      CHECK(ids == Ids{257, 0xE1, 0xBB, 0x87, 't'});
    }
  }
}

TEST_CASE("the last blank goes with the word that follows (T5)") {
  for (const std::string pre : {"qwen2", "llama-bpe"}) {
    CHECK(PreWords(pre, "a  b") == Words{"a", " ", " b"});
    CHECK(PreWords(pre, "def f():\n    return  x") ==
          Words{"def", " f", "():\n", "   ", " return", " ", " x"});
  }
  CHECK(PreWords("smollm", "a  b") == Words{"a", " ", " b"});
  CHECK(PreWords("smollm", "def f():\n    return  x") ==
        Words{"def", " f", "():", "\n   ", " return", " ", " x"});
}

TEST_CASE("digits are cut one by one, by three, or not") {
  CHECK(PreWords("qwen2", "a 1234") == Words{"a", " ", "1", "2", "3", "4"});
  CHECK(PreWords("smollm", "a  12b") == Words{"a", "  ", "1", "2", "b"});
  CHECK(PreWords("llama-bpe", "a 1234") == Words{"a", " ", "123", "4"});
  CHECK(PreWords("gpt-2", "a 1234") == Words{"a", " 1234"});
}

TEST_CASE("contractions of either case") {
  CHECK(PreWords("gpt-2", "I'LL I'll") == Words{"I", "'", "LL", " I", "'ll"});
  CHECK(PreWords("qwen2", "I'LL I'll") == Words{"I", "'LL", " I", "'ll"});
}

TEST_CASE("bytes that are no UTF-8 are kept (T1)") {
  for (const std::string pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    const auto tokenizer = MakeTokenizer(GoldenVocab(pre));
    for (const std::string text :
         {"\xE6\xAD", "\x80", "\xFF", "\xED\xA0\x80", "a\xE6\xAD b\xF0\x9F", "\xC0\x80\xF5",
          "\xF4\x90\x80\x80", "'\xC5",
          "1\xFF"
          "2",
          " \xFF", "\xFF \xFF", "\n\xC2\n"}) {
      CHECK(tokenizer->Decode(Encode(*tokenizer, text)) == text);
    }
    std::mt19937 rng(1);
    for (int round = 0; round < 300; ++round) {
      std::string text(rng() % 200, '\0');
      for (char& c : text)
        c = static_cast<char>(rng() % 3 == 0 ? rng() : " 'as1\n\xE6\xAD"[rng() % 8]);
      CHECK(tokenizer->Decode(Encode(*tokenizer, text)) == text);
    }
  }
  // A cut character merges as far as its bytes do: E6 AD is one token here.
  const auto tokenizer =
      MakeTokenizer(ByteVocab("llama-bpe", {Alphabet("\xE6") + " " + Alphabet("\xAD")}));
  CHECK(Encode(*tokenizer, "\xE6\xAD\xAA") == Ids{256, 0xAA});
  CHECK(Encode(*tokenizer, "\xE6\xAD") == Ids{256});
}

TEST_CASE("a byte without a token is left out, and nothing merges across it") {
  VocabSpec spec = ByteVocab("gpt-2", {"a b"});
  spec.tokens['#'] = "##";  // no token of a single '#' any more
  spec.unknown = 0;
  const auto tokenizer = MakeTokenizer(spec);
  CHECK(tokenizer->MissingBytes() == "#");
  CHECK(Encode(*tokenizer, "#") == Ids{});
  CHECK(Encode(*tokenizer, "!#!") == Ids{'!', '!'});
  CHECK(Encode(*tokenizer, "ab") == Ids{256});
}

TEST_CASE("very long words end in time and come back whole") {
  const auto tokenizer = MakeTokenizer(ByteVocab("smollm", {"a a", "aa aa", "aaaa aaaa"}));
  for (const char c : {'a', ' ', '\n', '9', '!'}) {
    const std::string text(size_t{1} << 20, c);
    const Ids ids = Encode(*tokenizer, text);
    CHECK(tokenizer->Decode(ids) == text);
    if (c == 'a') CHECK(ids.size() == text.size() / 8);
  }
}

TEST_CASE("a text above the limit is refused with both sizes") {
  const auto tokenizer = MakeTokenizer(ByteVocab("smollm"));
  const auto status = tokenizer->Encode(std::string(kMaxEncodeBytes + 1, 'a'), {}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message().find("16777217") != std::string::npos);
  CHECK(status.message().find("16777216") != std::string::npos);
}

TEST_CASE("special tokens are parsed when asked, the longest first") {
  VocabSpec spec = ByteVocab("gpt-2", {}, {"<|a|>", "<|a|>b", "<|"});
  spec.tokens.push_back("<tool>");
  spec.kinds.push_back(TokenKind::kUserDefined);
  spec.tokens.push_back("<unused>");
  spec.kinds.push_back(TokenKind::kUnused);
  const auto tokenizer = MakeTokenizer(std::move(spec));
  EncodeOptions parse;
  parse.parse_special = true;
  CHECK(Encode(*tokenizer, "x<|a|>b<|a|><tool><|a<", parse) ==
        Ids{'x', 257, 256, 259, 258, 'a', '<'});
  CHECK(Encode(*tokenizer, "<|", parse) == Ids{258});
  CHECK(Encode(*tokenizer, "<unused>", parse).size() == 8);
  // As text they are bytes, user-defined ones too.
  CHECK(Encode(*tokenizer, "<|a|><tool>").size() == 11);
  CHECK(tokenizer->IsSpecial(256));
  CHECK_FALSE(tokenizer->IsSpecial(259));
  CHECK_FALSE(tokenizer->IsSpecial(-1));
  CHECK(tokenizer->Decode(Ids{'x', 256, 259}) == "x<tool>");
  CHECK(tokenizer->Decode(Ids{'x', 256, 259}, true) == "x<|a|><tool>");
  CHECK(tokenizer->FindSpecial("<|a|>") == 256);
  CHECK_FALSE(tokenizer->FindSpecial("a").has_value());
}

TEST_CASE("BOS is written once (C2, plain text)") {
  VocabSpec spec = ByteVocab("llama-bpe", {}, {"<|begin_of_text|>", "<|eot_id|>"});
  spec.bos = 256;
  spec.eos = 257;
  spec.add_bos = true;
  EncodeOptions options;
  options.add_bos = options.add_eos = true;
  options.parse_special = true;
  auto tokenizer = MakeTokenizer(spec);
  CHECK(Encode(*tokenizer, "a", options) == Ids{256, 'a'});
  CHECK(Encode(*tokenizer, "<|begin_of_text|>a", options) == Ids{256, 'a'});
  CHECK(Encode(*tokenizer, "", options) == Ids{256});
  CHECK(Encode(*tokenizer, "a") == Ids{'a'});
  CHECK(tokenizer->IsEndOfGeneration(257));
  CHECK_FALSE(tokenizer->IsEndOfGeneration(256));
  CHECK_FALSE(tokenizer->IsEndOfGeneration(99999));
  spec.add_bos = false;
  spec.add_eos = true;
  tokenizer = MakeTokenizer(spec);
  CHECK(Encode(*tokenizer, "a", options) == Ids{'a', 257});
}

TEST_CASE("encoding ends when its caller gives up, within a word or between words") {
  const auto tokenizer = MakeTokenizer(ByteVocab("smollm", {"a a"}));
  int asked = 0;
  const auto ids = tokenizer->Encode(std::string(1 << 20, 'a'),
                                     {.cancelled = [&asked] { return ++asked == 2; }});
  CHECK(ids.status().code() == absl::StatusCode::kCancelled);
  CHECK(asked == 2);
  std::string words;
  for (int i = 0; i < 20000; ++i) words += "word" + std::to_string(i) + " ";
  CHECK(tokenizer->Encode(words, {.cancelled = [] { return true; }}).status().code() ==
        absl::StatusCode::kCancelled);
  CHECK(tokenizer->Encode(words, {.cancelled = [] { return false; }}).ok());
}

TEST_CASE("no text has fewer tokens than MinTokens says") {
  const auto tokenizer = MakeTokenizer(ByteVocab("smollm", {"a a", "aa aa"}));
  for (const size_t n : {0u, 1u, 4u, 5u, 4000u}) {
    const std::string text(n, 'a');
    CHECK(tokenizer->MinTokens(text) == (n + 3) / 4);  // "aaaa" is the longest token
    CHECK(Encode(*tokenizer, text).size() >= tokenizer->MinTokens(text));
  }
}

TEST_CASE("a vocabulary with duplicates loads, and both ids decode, the first encodes (G7)") {
  VocabSpec spec = ByteVocab("smollm", {"a b"});
  spec.tokens.push_back("a");
  spec.tokens.push_back("ab");
  spec.kinds.resize(spec.tokens.size(), TokenKind::kNormal);
  const auto tokenizer = MakeTokenizer(std::move(spec));
  CHECK(Encode(*tokenizer, "a") == Ids{'a'});
  CHECK(Encode(*tokenizer, "ab") == Ids{256});
  CHECK(tokenizer->TokenBytes(257) == "a");
  CHECK(tokenizer->TokenBytes(258) == "ab");
  CHECK(tokenizer->TokenBytes(259).empty());
  CHECK(tokenizer->TokenBytes(-1).empty());
}

TEST_CASE("a vocabulary with wrong ids is refused (G7)") {
  VocabSpec spec = ByteVocab("smollm");
  spec.eos = 256;
  CHECK(Message(spec).find("tokenizer.ggml.eos_token_id is 256") != std::string::npos);
  spec.eos = -1;
  CHECK(Message(spec).find("tokenizer.ggml.eos_token_id is -1") != std::string::npos);
  spec.eos.reset();
  spec.add_bos = true;
  CHECK(Message(spec).find("tokenizer.ggml.bos_token_id") != std::string::npos);
  spec.add_bos = false;
  spec.merges = {"ab"};
  CHECK(Message(spec).find("tokenizer.ggml.merges: element 0") != std::string::npos);
  spec.merges.clear();
  spec.kinds.pop_back();
  CHECK(Message(spec).find("tokenizer.ggml.token_type has 255") != std::string::npos);
  CHECK_FALSE(Tokenizer::Create(VocabSpec{}).ok());
}

TEST_CASE("an unknown pre-tokenizer is an error that lists the known ones") {
  const auto status = Tokenizer::Create(ByteVocab("tekken")).status();
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  for (const char* name : {"\"tekken\"", "smollm", "llama-bpe", "qwen2", "gpt-2"}) {
    CHECK(status.message().find(name) != std::string::npos);
  }
  CHECK_FALSE(Tokenizer::Create(ByteVocab("")).ok());
}

#include "tests/common/llm/text_testing.h"

#include <fstream>
#include <utility>

#include "tests/catch.h"
#include "tests/testing/paths.h"

namespace sparkv::testing {

nlohmann::json ReadTokenizerGolden(const std::string& name) {
  std::ifstream in(SourcePath("tests/golden/tokenizer/" + name));
  REQUIRE(in.good());
  return nlohmann::json::parse(in);
}

VocabSpec GoldenVocab(const std::string& pre) {
  const nlohmann::json golden = ReadTokenizerGolden(pre + ".json");
  VocabSpec spec;
  spec.pre = golden.at("pre");
  spec.tokens = golden.at("tokens").get<std::vector<std::string>>();
  spec.merges = golden.at("merges").get<std::vector<std::string>>();
  return spec;
}

std::string AlphabetChar(uint8_t byte) {
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const uint32_t code = printable ? b : next++;
    if (b != byte) continue;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  }
  return "";
}

std::string Alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += AlphabetChar(static_cast<uint8_t>(c));
  return out;
}

VocabSpec ByteVocab(const std::string& pre, const std::vector<std::string>& merges,
                    const std::vector<std::string>& control) {
  VocabSpec spec;
  spec.pre = pre;
  for (int b = 0; b < 256; ++b) spec.tokens.push_back(AlphabetChar(static_cast<uint8_t>(b)));
  for (const std::string& merge : merges) {
    const size_t blank = merge.find(' ');
    spec.tokens.push_back(merge.substr(0, blank) + merge.substr(blank + 1));
  }
  spec.merges = merges;
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  for (const std::string& text : control) {
    spec.tokens.push_back(text);
    spec.kinds.push_back(TokenKind::kControl);
  }
  return spec;
}

std::unique_ptr<Tokenizer> MakeTokenizer(VocabSpec spec) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  REQUIRE_OK(tokenizer);
  return *std::move(tokenizer);
}

}  // namespace sparkv::testing

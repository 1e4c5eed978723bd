// Any bytes: encoding and decoding gives them back, words add up to the text, and a stream of the
// ids is valid UTF-8 and equal to the one-shot text. First byte: pre-tokenizer and options. As a
// chat template, the bytes are refused or rendered.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/utf8.h"
#include "common/llm/chat_template.h"
#include "common/llm/detokenizer.h"
#include "common/llm/tokenizer.h"

namespace {

using sparkv::TokenKind;

void Require(bool ok) {
  if (!ok) std::abort();
}

std::string AlphabetChar(uint32_t byte) {
  uint32_t next = 256;
  for (uint32_t b = 0;; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const uint32_t code = printable ? b : next++;
    if (b != byte) continue;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  }
}

std::unique_ptr<sparkv::Tokenizer> MakeTokenizer(const char* pre) {
  sparkv::VocabSpec spec;
  spec.pre = pre;
  for (uint32_t b = 0; b < 256; ++b) spec.tokens.push_back(AlphabetChar(b));
  const auto merge = [&](const std::string& left, const std::string& right) {
    spec.merges.push_back(left + " " + right);
    spec.tokens.push_back(left + right);
  };
  const std::string blank = AlphabetChar(' '), line = AlphabetChar('\n');
  merge("a", "a");
  merge("aa", "aa");
  merge(blank, blank);
  merge(blank, "a");
  merge("a", "b");
  merge(line, line);
  merge(AlphabetChar(0xF0), AlphabetChar(0x9F));
  merge(AlphabetChar(0x98), AlphabetChar(0xB8));
  merge(AlphabetChar(0xE6), AlphabetChar(0xAD));
  merge("'", "s");
  merge("1", "2");
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<|", "<|a"}) {
    spec.tokens.push_back(text);
    spec.kinds.push_back(text[2] == 'a' ? TokenKind::kUserDefined : TokenKind::kControl);
  }
  return *sparkv::Tokenizer::Create(std::move(spec));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<sparkv::Tokenizer> tokenizers[] = {
      MakeTokenizer("smollm"), MakeTokenizer("gpt-2"), MakeTokenizer("llama-bpe"),
      MakeTokenizer("qwen2")};
  if (size == 0 || size > 65536) return 0;
  const sparkv::Tokenizer& tokenizer = *tokenizers[data[0] & 3];
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  sparkv::EncodeOptions options;
  options.parse_special = (data[0] & 4) != 0;
  const auto ids = tokenizer.Encode(text, options);
  Require(ids.ok());
  Require(tokenizer.Decode(*ids, true) == text);
  std::string words;
  for (const std::string_view word : tokenizer.PreTokenize(text)) {
    Require(!word.empty());
    words += word;
  }
  Require(words == text);

  sparkv::Detokenizer stream(tokenizer, true);
  std::string streamed;
  for (const int32_t id : *ids) {
    const std::string chunk = stream.Push(id);
    Require(sparkv::ToValidUtf8(chunk) == chunk);
    streamed += chunk;
  }
  streamed += stream.Finish();
  Require(streamed == sparkv::ToValidUtf8(text));
  // Ids as they come from nowhere.
  for (size_t i = 1; i < size; ++i) {
    const std::string chunk = stream.Push(static_cast<int32_t>(data[i]) * 3 - 100);
    Require(sparkv::ToValidUtf8(chunk) == chunk);
  }

  if ((data[0] & 8) != 0) {
    const auto chat = sparkv::ChatTemplate::Create(text, tokenizer);
    if (chat.ok()) Require((*chat)->Document(text, text).ok() && (*chat)->Question(text).ok());
  }
  return 0;
}

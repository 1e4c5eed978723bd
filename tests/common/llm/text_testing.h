// Vocabularies and golden files for the tests of text.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/llm/tokenizer.h"

namespace sparkv::testing {

// tests/golden/tokenizer/<name>; fails the test when it is missing.
nlohmann::json ReadTokenizerGolden(const std::string& name);
// The small vocabulary of a golden file: smollm, gpt-2, llama-bpe, qwen2.
VocabSpec GoldenVocab(const std::string& pre);
// All 256 bytes as ids 0..255, then the merges' results in order, then control tokens.
VocabSpec ByteVocab(const std::string& pre, const std::vector<std::string>& merges = {},
                    const std::vector<std::string>& control = {});
// A byte in the alphabet of GPT-2.
std::string AlphabetChar(uint8_t byte);
std::string Alphabet(std::string_view bytes);
std::unique_ptr<Tokenizer> MakeTokenizer(VocabSpec spec);

}  // namespace sparkv::testing

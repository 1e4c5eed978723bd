// Against `tokenizers` and llama.cpp; see tests/golden/make_tokenizer_golden.py.
#include <iostream>

#include "tests/catch.h"
#include "tests/common/llm/text_testing.h"
#include "tests/testing/paths.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

using Ids = std::vector<int32_t>;

void CheckGolden(const std::string& pre) {
  const auto texts = ReadTokenizerGolden("texts.json").get<std::vector<std::string>>();
  const nlohmann::json golden = ReadTokenizerGolden(pre + ".json");
  const auto tokenizer = MakeTokenizer(GoldenVocab(pre));
  REQUIRE(golden.at("cases").size() == texts.size());
  REQUIRE(texts.size() > 150);
  for (size_t i = 0; i < texts.size(); ++i) {
    INFO(i << ": " << texts[i]);
    std::vector<size_t> lengths;
    for (const std::string_view word : tokenizer->PreTokenize(texts[i]))
      lengths.push_back(word.size());
    CHECK(lengths == golden["cases"][i].at("words").get<std::vector<size_t>>());
    const absl::StatusOr<Ids> ids = tokenizer->Encode(texts[i], {});
    REQUIRE_OK(ids);
    CHECK(*ids == golden["cases"][i].at("ids").get<Ids>());
    CHECK(tokenizer->Decode(*ids) == texts[i]);
  }
}

}  // namespace

TEST_CASE("smollm words and ids are the reference's") { CheckGolden("smollm"); }
TEST_CASE("gpt-2 words and ids are the reference's") { CheckGolden("gpt-2"); }
TEST_CASE("llama-bpe words and ids are the reference's") { CheckGolden("llama-bpe"); }
TEST_CASE("qwen2 words and ids are the reference's") { CheckGolden("qwen2"); }

TEST_CASE("SmolLM2's ids are llama.cpp's") {
  SPARKV_NEED_MODEL();
  const auto gguf = GgufReader::Open(TestModel());
  REQUIRE_OK(gguf);
  auto spec = ReadVocab(**gguf);
  REQUIRE_OK(spec);
  CHECK_FALSE(spec->add_bos);
  const auto tokenizer = MakeTokenizer(*std::move(spec));
  // The vocabulary lacks these; see tokenizer.h.
  CHECK(tokenizer->MissingBytes() ==
        "\x04\x06\x13\x14\x16\x1D\xC0\xC1\xF1\xF2\xF5\xF6\xF7\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF");
  CHECK(tokenizer->IsEndOfGeneration(2));
  CHECK(tokenizer->IsEndOfGeneration(0));
  CHECK_FALSE(tokenizer->IsEndOfGeneration(1));

  const auto texts = ReadTokenizerGolden("texts.json").get<std::vector<std::string>>();
  const nlohmann::json cases = ReadTokenizerGolden("smollm2.json");
  REQUIRE(cases.size() == texts.size());
  EncodeOptions parse;
  parse.parse_special = true;
  for (size_t i = 0; i < texts.size(); ++i) {
    INFO(i << ": " << texts[i]);
    const absl::StatusOr<Ids> ids = tokenizer->Encode(texts[i], {});
    REQUIRE_OK(ids);
    CHECK(*ids == cases[i].at("ids").get<Ids>());
    const absl::StatusOr<Ids> parsed = tokenizer->Encode(texts[i], parse);
    REQUIRE_OK(parsed);
    CHECK(*parsed == cases[i].value("special", *ids));
  }
  // The engine's golden prompts: their ids are llama.cpp's, and their text follows from the ids.
  const nlohmann::json prompts = ReadTokenizerGolden("../smollm2/prompts.json");
  REQUIRE(prompts.size() == 5);
  for (const auto& [name, prompt] : prompts.items()) {
    INFO(name);
    const auto expected = prompt.at("ids").get<Ids>();
    const absl::StatusOr<Ids> ids = tokenizer->Encode(tokenizer->Decode(expected, true), parse);
    REQUIRE_OK(ids);
    CHECK(*ids == expected);
  }
}

#include "tests/catch.h"
#include "tests/common/gguf/gguf_bytes.h"
#include "tests/common/llm/text_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

// A vocabulary-only file of three tokens.
GgufBytes Small() {
  GgufBytes file;
  file.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab"})
      .Strings("tokenizer.ggml.merges", {"a b"});
  return file;
}

absl::StatusOr<VocabSpec> Read(const GgufBytes& file) {
  const ParsedGguf parsed(file.Build());
  REQUIRE_OK(parsed.reader);
  return ReadVocab(**parsed.reader);
}

void CheckRefused(const GgufBytes& file, const std::string& named) {
  const ParsedGguf parsed(file.Build());
  REQUIRE_OK(parsed.reader);
  absl::StatusOr<VocabSpec> spec = ReadVocab(**parsed.reader);
  absl::Status status = spec.status();
  if (spec.ok()) status = Tokenizer::Create(*std::move(spec)).status();
  INFO(status.ToString());
  CHECK_FALSE(status.ok());
  CHECK(status.message().find(named) != std::string::npos);
}

}  // namespace

TEST_CASE("a vocabulary is read from a GGUF file") {
  const auto spec = Read(Small()
                             .Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 3})
                             .U32("tokenizer.ggml.eos_token_id", 2)
                             .U32("tokenizer.ggml.padding_token_id", 1));
  REQUIRE_OK(spec);
  CHECK(spec->pre == "smollm");
  CHECK(spec->tokens == std::vector<std::string>{"a", "b", "ab"});
  CHECK(spec->merges == std::vector<std::string>{"a b"});
  CHECK(spec->kinds[2] == TokenKind::kControl);
  CHECK(spec->eos == 2);
  CHECK(spec->pad == 1);
  CHECK_FALSE(spec->bos.has_value());
  CHECK_FALSE(spec->add_bos);
}

TEST_CASE("Llama 3 files want a BOS when they don't say") {
  for (const std::string pre : {"llama-bpe", "llama3", "qwen2"}) {
    GgufBytes file;
    file.String("tokenizer.ggml.model", "gpt2")
        .String("tokenizer.ggml.pre", pre)
        .Strings("tokenizer.ggml.tokens", {"a", "b"})
        .Strings("tokenizer.ggml.merges", {})
        .U32("tokenizer.ggml.bos_token_id", 1);
    const auto spec = Read(file);
    REQUIRE_OK(spec);
    CHECK(spec->add_bos == (pre != "qwen2"));
  }
}

TEST_CASE("a vocabulary that can't be used is refused by key (G7)") {
  for (const char* key : {"bos", "eos", "eot", "padding", "unknown"}) {
    const std::string name = "tokenizer.ggml." + std::string(key) + "_token_id";
    CheckRefused(Small().U32(name, 4294967295u), name);
    CheckRefused(Small().U32(name, 3), name);
    CheckRefused(Small().String(name, "1"), name);
  }
  CheckRefused(Small().Bool("tokenizer.ggml.add_bos_token", true), "tokenizer.ggml.add_bos_token");
  CheckRefused(Small().Bool("tokenizer.ggml.add_eos_token", true), "tokenizer.ggml.add_eos_token");
  CheckRefused(Small().Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1}),
               "tokenizer.ggml.token_type");
  CheckRefused(Small().Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 9}),
               "tokenizer.ggml.token_type");
  GgufBytes other;
  other.String("tokenizer.ggml.model", "llama");
  CheckRefused(other, "tokenizer.ggml.model");
  CheckRefused(GgufBytes(), "tokenizer.ggml.model");
  GgufBytes empty;
  empty.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {})
      .Strings("tokenizer.ggml.merges", {});
  CheckRefused(empty, "tokenizer.ggml.tokens");
  GgufBytes pre;
  pre.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "tekken")
      .Strings("tokenizer.ggml.tokens", {"a"})
      .Strings("tokenizer.ggml.merges", {});
  CheckRefused(pre, "tokenizer.ggml.pre");
}

TEST_CASE("a vocabulary with duplicates in the file works (G7)") {
  GgufBytes file;
  file.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "a", "b"})
      .Strings("tokenizer.ggml.merges", {});
  auto spec = Read(file);
  REQUIRE_OK(spec);
  const auto tokenizer = MakeTokenizer(*std::move(spec));
  const auto ids = tokenizer->Encode("ab", {});
  REQUIRE_OK(ids);
  CHECK(*ids == std::vector<int32_t>{0, 2});
  CHECK(tokenizer->TokenBytes(1) == "a");
}

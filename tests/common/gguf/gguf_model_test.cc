// The shipped model.
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "common/gguf/gguf_reader.h"
#include "common/gguf/gguf_summary.h"
#include "tests/catch.h"
#include "tests/testing/paths.h"

using namespace sparkv;

TEST_CASE("the shipped model has the expected keys, shapes and types") {
  SPARKV_NEED_MODEL();
  const auto opened = GgufReader::Open(testing::TestModel());
  REQUIRE_OK(opened);
  const GgufReader& gguf = **opened;
  CHECK(gguf.tensors().size() == 272);
  CHECK(*gguf.GetString("general.architecture") == std::string("llama"));
  CHECK(*gguf.GetU32("llama.block_count") == 30);
  CHECK(*gguf.GetU32("llama.embedding_length") == 576);
  CHECK(*gguf.GetU32("llama.feed_forward_length") == 1536);
  CHECK(*gguf.GetU32("llama.attention.head_count") == 9);
  CHECK(*gguf.GetU32("llama.attention.head_count_kv") == 3);
  CHECK(*gguf.GetU32("llama.context_length") == 8192);
  CHECK(*gguf.GetDouble("llama.rope.freq_base") == 100000.0);
  CHECK(*gguf.GetString("tokenizer.ggml.model") == std::string("gpt2"));
  CHECK(*gguf.GetString("tokenizer.ggml.pre") == std::string("smollm"));
  const auto tokens = gguf.GetStrings("tokenizer.ggml.tokens");
  REQUIRE_OK(tokens);
  CHECK(tokens->size() == 49152);
  CHECK((*tokens)[1] == std::string("<|im_start|>"));

  const GgufTensor* embedding = gguf.FindTensor("token_embd.weight");
  REQUIRE(embedding != nullptr);
  CHECK(embedding->type == kernels::GgmlType::kQ8_0);
  CHECK(embedding->row() == 576);
  CHECK(embedding->rows() == 49152);
  const GgufTensor* down = gguf.FindTensor("blk.29.ffn_down.weight");
  REQUIRE(down != nullptr);
  CHECK(down->type == kernels::GgmlType::kQ4_1);
  CHECK(down->row() == 1536);
  CHECK(down->rows() == 576);
  CHECK(gguf.FindTensor("output.weight") == nullptr);

  // Every tensor expands to finite values of a sane size.
  for (const GgufTensor& tensor : gguf.tensors()) {
    std::vector<float> row(tensor.row());
    REQUIRE_OK(kernels::DequantizeRow(tensor.type, tensor.data.data(), row.data(), row.size()));
    for (const float value : row) REQUIRE(std::fabs(value) < 1000.0f);
  }
  CHECK(GgufSummary(gguf).find("blk.29.ffn_down.weight") != std::string::npos);
}

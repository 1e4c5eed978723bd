// What the model says after a load through its own codec profile, whatever the split: the base that
// a streamed block is predicted from may have been computed here.
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/calibrate/fidelity.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_aatc.h"
#include "common/llm/token_rows.h"
#include "edge/load/cost_model.h"
#include "edge/load/decoder_compute.h"
#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"
#include "tests/edge/load/loader_fixture.h"
#include "tests/testing/paths.h"

namespace sparkv::load_testing {
namespace {

constexpr uint32_t kTokens = 1200;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("SmolLM2: through its profile every split says the same as local prefill") {
  SPARKV_NEED_MODEL();
  SPARKV_NEED_PROFILE();
  const auto loaded = sparkv::testing::LoadModel(sparkv::testing::TestModel());
  REQUIRE_OK(loaded);
  const std::shared_ptr<const Model> model = *loaded;
  const auto profile = CodecProfile::Parse(ReadAll(sparkv::testing::TestProfile()));
  REQUIRE_OK(profile);
  const TokenEmbedding embedding{.width = model->config().d_model,
                                 .rows = [&model](std::span<const int32_t> tokens, float* rows) {
                                   return TokenRows(*model, tokens, rows);
                                 }};
  const auto encoder = MakeResidualEncoder(*profile, embedding);
  REQUIRE_OK(encoder);
  const auto residual = MakeResidualDecoder(*profile, embedding);
  REQUIRE_OK(residual);
  const auto ids = model->tokenizer().Encode(
      ReadAll(sparkv::testing::SourcePath("scripts/texts/benchmark/prose.txt")), {});
  REQUIRE_OK(ids);
  REQUIRE(ids->size() >= kTokens + FidelityProbe::kFollowing);

  const KvGeometry g = model->config().Geometry(KvDtype::kF16);
  const auto pool = KvPagePool::Create(g, g.token_bytes() * (3 * kTokens + 2048));
  REQUIRE_OK(pool);
  Decoder decoder(model, DecoderOptions{});
  DecoderCompute compute(&decoder);
  const auto probe = FidelityProbe::Create(&decoder, *pool, *ids, kTokens);
  REQUIRE_OK(probe);
  const double final_row = *MeasureFinalRow(**residual, g, &compute);
  CHECK(final_row > 0);
  CHECK(final_row < 1e-3);

  LoadProblem problem;
  problem.layers = g.layers;
  for (uint32_t t = 0; t < ColumnCount(kTokens); ++t)
    problem.column_tokens.push_back(ColumnTokens(kTokens, t));
  problem.block_bytes.assign(size_t{problem.columns()} * g.layers, 0);
  problem.compute.proj_row = problem.compute.dense_row = 1e-6;
  problem.link_bytes_per_s = 1e7;
  problem.first_layer_local = true;
  std::vector<std::vector<std::string>> blocks;
  for (uint32_t t = 0; t < problem.columns(); ++t) {
    const BlockShape shape{g.kv_heads, problem.column_tokens[t], g.head_dim};
    std::vector<std::vector<uint16_t>> k(g.layers), v(g.layers);
    std::vector<const uint16_t*> ks, vs;
    for (uint32_t l = 0; l < g.layers; ++l) {
      k[l].resize(shape.elements());
      v[l].resize(shape.elements());
      REQUIRE_OK(
          probe->exact().ExportBlock(l, problem.begin(t), shape.tokens, k[l].data(), v[l].data()));
      ks.push_back(k[l].data());
      vs.push_back(v[l].data());
    }
    const ColumnInput column{.shape = shape,
                             .first_token = problem.begin(t),
                             .tokens = probe->context().subspan(problem.begin(t), shape.tokens),
                             .k = ks,
                             .v = vs};
    auto encoded = (*encoder)->EncodeColumn(column, nullptr);
    REQUIRE_OK(encoded);
    for (auto& block : encoded->planes) blocks.push_back(std::move(block));
  }

  const auto load = [&](uint32_t planes, const std::vector<uint32_t>& depth) {
    const std::unique_ptr<LoadPolicy> policy = MakeGivenPolicy(depth);
    ScriptedStream stream(blocks, g.layers);
    KvCache cache(*pool);
    LoadJob job;
    job.context = probe->context();
    job.cache = &cache;
    job.policy = policy.get();
    job.problem = problem;
    job.problem.whole_columns = (*residual)->predicts() && planes > 1;
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (uint32_t p = 0; i % g.layers > 0 && p < planes; ++p)
        job.problem.block_bytes[i] += blocks[i][p].size();
    }
    job.stream = &stream;
    job.residual = residual->get();
    job.planes = planes;
    const auto result = RunLoad(job, &compute, RealClock());
    REQUIRE_OK(result);
    REQUIRE(result->degraded.empty());
    const auto fidelity = probe->Measure(&cache);
    REQUIRE_OK(fidelity);
    return *fidelity;
  };
  std::mt19937 rng(1);
  for (int i = 0; i < 6; ++i) {
    std::vector<uint32_t> depth;
    for (uint32_t t = 0; t < problem.columns(); ++t) depth.push_back(1 + rng() % g.layers);
    if (i == 0) depth.assign(problem.columns(), 1);
    const Fidelity fidelity = load(1, depth);
    INFO("depths " << depth[0] << " " << depth[1] << ": KL " << fidelity.kl << ", copy KL "
                   << fidelity.copy_kl);
    CHECK(fidelity.kl <= 0.02);
    CHECK(fidelity.copy_kl <= 0.06);
  }
  const Fidelity streamed = load(1, {1, 1});
  const Fidelity finer = load(3, {1, 1});
  const Fidelity mixed = load(3, {30, 1});
  INFO("3 planes: KL " << finer.kl << ", second column only " << mixed.kl << "; 1 plane "
                       << streamed.kl);
  CHECK(finer.kl < streamed.kl);
  CHECK(mixed.kl < streamed.kl);
}

}  // namespace
}  // namespace sparkv::load_testing

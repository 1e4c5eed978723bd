#include "common/llm/decoder.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/cpu_features.h"
#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

std::shared_ptr<const Model> Tiny(const std::string& name) {
  auto model = LoadBytes(TinyGguf(name));
  REQUIRE_OK(model);
  return *model;
}

std::vector<int32_t> RandomIds(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 256);
  return ids;
}

// Last-token logits of a fresh run.
std::vector<float> Fresh(Decoder* decoder, std::span<const int32_t> ids) {
  KvCache cache = MakeCache(decoder->model(), KvDtype::kF32);
  std::vector<float> logits(decoder->model().config().vocabulary);
  REQUIRE_OK(decoder->Prefill(ids, &cache, logits.data()));
  return logits;
}

// Bytes of all K and V rows.
std::vector<float> AllRows(const KvCache& cache) {
  const KvGeometry& g = cache.geometry();
  std::vector<float> rows;
  for (uint32_t layer = 0; layer < g.layers; ++layer) {
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      const size_t at = rows.size();
      rows.resize(at + size_t{g.row()} * cache.tokens());
      cache.ReadRows(layer, side, 0, cache.tokens(), &rows[at],
                     size_t{cache.tokens()} * g.head_dim);
    }
  }
  return rows;
}

constexpr float kSame = 2e-4f;  // logits of about 6 from sums in another order

}  // namespace

TEST_CASE("prefill gives the same logits and cache for every step size and cut") {
  const auto model = Tiny("llama");
  const std::vector<int32_t> ids = RandomIds(200, 1);
  Decoder whole(model, {.threads = 2, .step_tokens = 1024});
  const std::vector<float> expected = Fresh(&whole, ids);
  KvCache reference = MakeCache(*model, KvDtype::kF32);
  REQUIRE_OK(whole.Prefill(ids, &reference, nullptr));
  for (const uint32_t step : {1u, 7u, 16u, 64u, 100u}) {
    INFO("step " << step);
    Decoder decoder(model, {.threads = 2, .step_tokens = step});
    REQUIRE(MaxDifference(Fresh(&decoder, ids), expected) <= kSame);
  }
  for (const size_t cut : {1u, 7u, 64u, 150u, 199u}) {
    INFO("cut " << cut);
    KvCache cache = MakeCache(*model, KvDtype::kF32);
    std::vector<float> logits(model->config().vocabulary);
    REQUIRE_OK(whole.Prefill(std::span(ids).first(cut), &cache, nullptr));
    REQUIRE_OK(whole.Prefill(std::span(ids).subspan(cut), &cache, logits.data()));
    REQUIRE(cache.tokens() == 200);
    REQUIRE(MaxDifference(logits, expected) <= kSame);
    REQUIRE(MaxDifference(AllRows(cache), AllRows(reference)) <= kSame);
  }
}

TEST_CASE("sparse prefill is the dense one when all is visited and another when it is not") {
  const auto model = Tiny("llama");
  const std::vector<int32_t> ids = RandomIds(250, 5);
  Decoder dense(model, {.threads = 2});
  const std::vector<float> expected = Fresh(&dense, ids);
  const AttentionWork& all = dense.attention_work();
  CHECK(all.visited == all.seen);
  // A theta above 1 visits everything, whatever tau is.
  Decoder full(
      model, {.threads = 2, .attention = {.sparse = true, .tau = 0.1f, .theta = 2, .min_keys = 0}});
  REQUIRE(MaxDifference(Fresh(&full, ids), expected) <= kSame);
  CHECK(full.attention_work().visited == full.attention_work().seen);

  const AttentionOptions half = {.sparse = true, .tau = 0.1f, .theta = -1, .min_keys = 0};
  Decoder sparse(model, {.threads = 2, .attention = half});
  const std::vector<float> some = Fresh(&sparse, ids);
  CHECK(sparse.attention_work().visited < sparse.attention_work().seen);
  CHECK(MaxDifference(some, expected) > kSame);
  // The same bits in the cache for every number of threads.
  std::vector<float> rows;
  for (const int threads : {1, 2, 3, 5}) {
    Decoder other(model, {.threads = threads, .attention = half});
    KvCache cache = MakeCache(*model, KvDtype::kF32);
    REQUIRE_OK(other.Prefill(ids, &cache, nullptr));
    if (rows.empty()) rows = AllRows(cache);
    CHECK((AllRows(cache) == rows));
  }
  // Rows of a question are dense.
  Decoder question(model, {.threads = 2, .attention = half});
  question.set_dense_from(0);
  // Without AVX2 it is LibTorch that attends in `dense`.
  CHECK(MaxDifference(Fresh(&question, ids), expected) <= (kernels::HasAvx2() ? 0 : kSame));
  CHECK(question.attention_work().visited == question.attention_work().seen);
  question.set_dense_from(UINT32_MAX);
  CHECK((Fresh(&question, ids) == some));
}

TEST_CASE("a prefill counts the active blocks of every layer but the last, which it does not run") {
  const auto model = Tiny("llama");
  const ModelConfig& c = model->config();
  const std::vector<int32_t> ids = RandomIds(250, 6);
  std::vector<std::vector<uint16_t>> counts;
  for (const int threads : {1, 2, 3}) {
    Decoder decoder(model, {.threads = threads});
    KvCache cache = MakeCache(*model, KvDtype::kF16);
    std::vector<uint16_t> active;
    REQUIRE_OK(decoder.Prefill(ids, &cache, nullptr, {}, nullptr, &active));
    counts.push_back(active);
  }
  CHECK(counts[1] == counts[0]);
  CHECK(counts[2] == counts[0]);
  if (!kernels::HasAvx2()) return;  // LibTorch's products tell nothing of blocks
  REQUIRE(counts[0].size() == size_t{c.layers} * c.kv_heads);
  for (size_t i = 0; i < counts[0].size(); ++i) {
    const bool last = i / c.kv_heads + 1 == c.layers;
    CHECK((counts[0][i] == 0) == last);
    CHECK(counts[0][i] <= 4);
  }
}

TEST_CASE("a token changes its own and later logits and no earlier one") {
  const auto model = Tiny("qwen3");
  Decoder decoder(model, {.threads = 2});
  const size_t vocabulary = model->config().vocabulary;
  const std::vector<int32_t> ids = RandomIds(40, 2);
  const std::vector<float> before = LogitsByLayers(&decoder, ids, KvDtype::kF32, 20);
  for (const size_t changed : {0u, 5u, 19u, 20u, 39u}) {
    INFO(changed);
    std::vector<int32_t> other = ids;
    other[changed] = (other[changed] + 1) % 256;
    const std::vector<float> after = LogitsByLayers(&decoder, other, KvDtype::kF32, 20);
    const auto row = [&](const std::vector<float>& x, size_t i) {
      return std::span(x).subspan(i * vocabulary, vocabulary);
    };
    for (size_t i = 0; i < changed; ++i)
      REQUIRE(MaxDifference(row(before, i), row(after, i)) <= 1e-5f);
    REQUIRE(MaxDifference(row(before, changed), row(after, changed)) > 0.1f);
    if (changed + 1 < ids.size()) {
      REQUIRE(MaxDifference(row(before, changed + 1), row(after, changed + 1)) > 1e-2f);
    }
  }
}

TEST_CASE("Attend from a first row computes the rows from there and leaves the others") {
  const auto model = Tiny("llama3");
  const ModelConfig& c = model->config();
  Decoder decoder(model, {.threads = 2});
  const std::vector<int32_t> ids = RandomIds(60, 3);
  KvCache cache = MakeCache(*model, KvDtype::kF16);
  REQUIRE_OK(cache.Extend(60));
  std::vector<float> input(60 * size_t{c.d_model});
  REQUIRE_OK(decoder.Embed(ids, input.data()));
  REQUIRE_OK(decoder.Project(0, input.data(), 0, 60, &cache));
  std::vector<float> all = input;
  REQUIRE_OK(decoder.Attend(0, all.data(), 0, 60, cache));
  for (const uint32_t first : {1u, 30u, 50u, 59u}) {
    INFO(first);
    std::vector<float> some = input;
    REQUIRE_OK(decoder.Attend(0, some.data(), 0, 60, cache, first));
    const size_t at = size_t{first} * c.d_model;
    REQUIRE(
        std::equal(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(at), input.begin()));
    REQUIRE(MaxDifference(std::span(some).subspan(at), std::span(all).subspan(at)) <= 1e-4f);
  }
  REQUIRE(decoder.Attend(0, input.data(), 0, 60, cache, 60).code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE(
    "a column may be computed layer by layer, later columns first where the events allow it") {
  // Column 1's layer 0 needs only embeddings; the rest needs column 0's K and V of the layer.
  const auto model = Tiny("llama");
  const ModelConfig& c = model->config();
  Decoder decoder(model, {.threads = 2});
  const std::vector<int32_t> ids = RandomIds(96, 4);
  KvCache reference = MakeCache(*model, KvDtype::kF16), cache = MakeCache(*model, KvDtype::kF16);
  REQUIRE_OK(decoder.Prefill(ids, &reference, nullptr));
  REQUIRE_OK(cache.Extend(96));
  std::vector<float> a(48 * size_t{c.d_model}), b(a.size());
  REQUIRE_OK(decoder.Embed(std::span(ids).first(48), a.data()));
  REQUIRE_OK(decoder.Embed(std::span(ids).subspan(48), b.data()));
  REQUIRE_OK(decoder.Project(0, b.data(), 48, 48, &cache));
  REQUIRE_OK(decoder.Project(0, a.data(), 0, 48, &cache));
  REQUIRE_OK(decoder.Attend(0, b.data(), 48, 48, cache));
  REQUIRE_OK(decoder.Project(1, b.data(), 48, 48, &cache));
  REQUIRE_OK(decoder.Attend(0, a.data(), 0, 48, cache));
  REQUIRE_OK(decoder.Project(1, a.data(), 0, 48, &cache));
  // A few f16 roundings may fall to the other side.
  REQUIRE(MaxDifference(AllRows(cache), AllRows(reference)) <= 8e-3f);
}

TEST_CASE("a cancelled or failed prefill leaves the cache as it was") {
  const auto model = Tiny("llama");
  Decoder decoder(model, {.threads = 2, .step_tokens = 16});
  const std::vector<int32_t> ids = RandomIds(100, 5);
  KvCache cache = MakeCache(*model, KvDtype::kF32);
  REQUIRE_OK(decoder.Prefill(std::span(ids).first(30), &cache, nullptr));
  const std::vector<float> before = AllRows(cache);

  CancelToken cancel;
  const auto cancelled = decoder.Prefill(std::span(ids).subspan(30), &cache, nullptr, cancel,
                                         [&](uint32_t) { cancel.Cancel(); });
  REQUIRE(cancelled.code() == absl::StatusCode::kCancelled);
  REQUIRE(cache.tokens() == 30);
  REQUIRE(AllRows(cache) == before);

  // So short that it takes one step: the token is looked at before it, too.
  REQUIRE(decoder.Prefill(std::span(ids).subspan(30, 3), &cache, nullptr, cancel).code() ==
          absl::StatusCode::kCancelled);
  REQUIRE(cache.tokens() == 30);
  REQUIRE(AllRows(cache) == before);

  const std::vector<int32_t> bad = {1, 2, 260};
  const auto rejected = decoder.Prefill(bad, &cache, nullptr);
  REQUIRE(rejected.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Contains(rejected.ToString(), "260"));
  REQUIRE(decoder.Prefill(std::vector<int32_t>{-1}, &cache, nullptr).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(decoder.Prefill({}, &cache, nullptr).code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(cache.tokens() == 30);

  const auto pool = KvPagePool::Create(model->config().Geometry(KvDtype::kF32),
                                       model->config().Geometry(KvDtype::kF32).token_bytes() * 64);
  REQUIRE_OK(pool);
  KvCache small(*pool);
  REQUIRE(decoder.Prefill(ids, &small, nullptr).code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(small.tokens() == 0);

  std::vector<float> logits(model->config().vocabulary);
  REQUIRE_OK(decoder.Prefill(std::span(ids).subspan(30), &cache, logits.data()));
  REQUIRE(MaxDifference(logits, Fresh(&decoder, ids)) <= kSame);
}

TEST_CASE("prompts beyond the model's context and foreign caches are refused") {
  const auto model = Tiny("llama");
  Decoder decoder(model, {.threads = 1});
  const std::vector<int32_t> ids = RandomIds(257, 6);
  KvCache cache = MakeCache(*model, KvDtype::kF16);
  const auto too_long = decoder.Prefill(ids, &cache, nullptr);
  REQUIRE(too_long.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Contains(too_long.ToString(), "256"));
  REQUIRE_OK(decoder.Prefill(std::span(ids).first(256), &cache, nullptr));
  std::vector<float> logits(model->config().vocabulary);
  REQUIRE(decoder.DecodeOne(1, &cache, logits.data()).code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(cache.tokens() == 256);

  KvCache foreign = MakeCache(*Tiny("qwen3"), KvDtype::kF16);
  REQUIRE(decoder.Prefill(std::span(ids).first(3), &foreign, nullptr).code() ==
          absl::StatusCode::kFailedPrecondition);
  REQUIRE(foreign.tokens() == 0);
  std::vector<float> hidden(model->config().d_model);
  REQUIRE(decoder.Project(2, hidden.data(), 0, 1, &cache).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(decoder.Project(0, hidden.data(), 256, 1, &cache).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(decoder.Project(0, hidden.data(), 0, 0, &cache).code() ==
          absl::StatusCode::kInvalidArgument);
}

// Case V2: a prompt equal to, shorter than, or one longer than the cached one.
TEST_CASE("a reused prefix of any length continues at the right position") {
  const auto model = Tiny("qwen2");
  Decoder decoder(model, {.threads = 2});
  std::vector<int32_t> ids = RandomIds(71, 7);
  std::fill(ids.begin() + 40, ids.end(), 90);  // "... Z Z Z Z"
  KvCache stored = MakeCache(*model, KvDtype::kF32);
  REQUIRE_OK(decoder.Prefill(std::span(ids).first(70), &stored, nullptr));
  for (const uint32_t n : {70u, 69u, 35u, 71u, 64u, 1u}) {
    INFO(n);
    const std::span<const int32_t> prompt = std::span(ids).first(n);
    const std::vector<float> expected = Fresh(&decoder, prompt);
    // At least the last prompt token is computed again.
    KvCache cache(stored.pool());
    REQUIRE_OK(cache.SharePrefix(stored, std::min(n - 1, 70u)));
    std::vector<float> logits(model->config().vocabulary);
    REQUIRE_OK(decoder.Prefill(prompt.subspan(cache.tokens()), &cache, logits.data()));
    REQUIRE(cache.tokens() == n);
    REQUIRE(MaxDifference(logits, expected) <= kSame);
    REQUIRE(std::max_element(logits.begin(), logits.end()) - logits.begin() ==
            std::max_element(expected.begin(), expected.end()) - expected.begin());
  }
}

TEST_CASE("progress rises to the number of tokens") {
  const auto model = Tiny("llama");
  Decoder decoder(model, {.threads = 2, .step_tokens = 32});
  KvCache cache = MakeCache(*model, KvDtype::kF16);
  std::vector<uint32_t> seen;
  REQUIRE_OK(decoder.Prefill(RandomIds(100, 8), &cache, nullptr, {},
                             [&](uint32_t done) { seen.push_back(done); }));
  REQUIRE(std::is_sorted(seen.begin(), seen.end()));
  REQUIRE(seen.back() == 100);
}

#include "edge/load/load_state.h"

#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

using Kind = ComputeOp::Kind;

TEST_CASE("the top computed layer of a column costs PROJ only") {
  LoadState state(1, 3, {2}, false, true);
  auto op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kProject && op->layer == 0));
  state.Finish(*op);
  op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kAttend && op->layer == 0));
  state.Finish(*op);
  op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kProject && op->layer == 1));
  state.Finish(*op);
  CHECK_FALSE(state.NextOp().has_value());  // no ATTN(0, 1), layer 2 is the stream's
  REQUIRE(state.ClaimForDecode(0, 2));
  CHECK_FALSE(state.column_complete(0));  // should decoding fail, its hidden rows are needed
  state.FinishDecode(0, 2, true);
  CHECK(state.column_complete(0));
  CHECK(state.done());
}

TEST_CASE("ATTN of a column waits for the layer's K and V of the columns before it") {
  LoadState state(2, 2, {0, 2}, false, true);
  auto op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kProject && op->column == 1));
  state.Finish(*op);
  CHECK_FALSE(state.NextOp().has_value());
  REQUIRE(state.ClaimForDecode(0, 0));
  CHECK_FALSE(state.NextOp().has_value());  // being decoded is not there yet
  state.FinishDecode(0, 0, true);
  op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kAttend && op->column == 1 && op->layer == 0));
}

TEST_CASE("a streamed layer is passed through to a gap above it") {
  LoadState state(1, 3, {0}, false, true);
  REQUIRE(state.ClaimForDecode(0, 0));
  state.FinishDecode(0, 0, true);
  state.MustCompute(0, 1);
  auto op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kAttend && op->layer == 0));
  state.Finish(*op);
  op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK((op->kind == Kind::kProject && op->layer == 1));
}

TEST_CASE("QUERY follows the layers one by one when pipelined, else it waits for everything") {
  for (const bool pipelined : {true, false}) {
    LoadState state(1, 2, {0}, true, pipelined);
    REQUIRE(state.ClaimForDecode(0, 0));
    state.FinishDecode(0, 0, true);
    auto op = state.NextOp();
    CHECK(op.has_value() == pipelined);
    if (pipelined) state.Finish(*op);
    REQUIRE(state.ClaimForDecode(0, 1));
    state.FinishDecode(0, 1, true);
    int queries = pipelined ? 1 : 0;
    while (!state.done()) {
      op = state.NextOp();
      REQUIRE(op.has_value());
      REQUIRE(op->kind == Kind::kQuery);
      CHECK(op->layer == static_cast<uint32_t>(queries));
      state.Finish(*op);
      ++queries;
    }
    CHECK(queries == 2);
  }
}

TEST_CASE("a block belongs to whoever claims it first") {
  LoadState state(1, 1, {1}, false, true);
  const auto op = state.NextOp();
  REQUIRE(op.has_value());
  CHECK_FALSE(state.ClaimForDecode(0, 0));
  state.Finish(*op);
  CHECK(state.block(0, 0) == BlockState::kComputed);
  LoadState other(1, 1, {1}, false, true);
  REQUIRE(other.ClaimForDecode(0, 0));
  CHECK_FALSE(other.NextOp().has_value());
  other.FinishDecode(0, 0, false);  // broken bytes: compute takes it
  REQUIRE(other.NextOp().has_value());
}

constexpr CodecRules kPredicts{.needs_final = true, .first_layer_local = true};
constexpr CodecRules kWhole{.needs_final = true, .first_layer_local = true, .whole_columns = true};

void Deliver(LoadState* state, uint32_t t, uint32_t l) {
  REQUIRE(state->ClaimForDecode(t, l));
  state->FinishDecode(t, l, true);
}

// Runs the next op and says what it was: "F01" is FINAL(0, 1).
std::string Step(LoadState* state) {
  const auto op = state->NextOp();
  if (!op.has_value()) return "";
  state->Finish(*op);
  const char* names = "PAQF";
  return absl::StrCat(std::string(1, names[static_cast<int>(op->kind)]), op->column, op->layer);
}

TEST_CASE("FINAL waits for the block below, streamed or computed, and the lower layer comes first") {
  LoadState state(2, 4, {1, 3}, true, true, kPredicts);
  CHECK_FALSE(state.present(0, 0));
  Deliver(&state, 0, 2);
  CHECK(state.block(0, 2) == BlockState::kSymbols);
  CHECK(Step(&state) == "P00");  // first layers of all columns first
  Deliver(&state, 0, 1);
  CHECK(Step(&state) == "P10");
  CHECK(Step(&state) == "Q00");
  CHECK(Step(&state) == "A10");
  CHECK(Step(&state) == "F01");
  Deliver(&state, 1, 3);
  CHECK(Step(&state) == "P11");
  CHECK(Step(&state) == "Q01");
  CHECK(Step(&state) == "A11");
  CHECK(Step(&state) == "F02");
  CHECK(state.block(0, 2) == BlockState::kStreamed);
  CHECK(Step(&state) == "P12");
  CHECK(Step(&state) == "Q02");
  CHECK(Step(&state) == "F13");  // on the computed (1, 2)
  CHECK(Step(&state).empty());
  Deliver(&state, 0, 3);
  CHECK(Step(&state) == "F03");
  CHECK(Step(&state) == "Q03");
  CHECK(state.done());
}

TEST_CASE("FINAL that fails is computed") {
  LoadState state(1, 3, {1}, false, true, kPredicts);
  Deliver(&state, 0, 1);
  Deliver(&state, 0, 2);
  CHECK(Step(&state) == "P00");
  const auto op = state.NextOp();
  REQUIRE(op.has_value());
  REQUIRE(op->kind == Kind::kFinal);
  CHECK(state.block(0, 1) == BlockState::kFinishing);
  state.FailFinal(0, 1);
  CHECK(Step(&state) == "A00");
  CHECK(Step(&state) == "P01");
  CHECK(Step(&state) == "F02");
  CHECK(state.done());
}

TEST_CASE("whole columns: what misses takes all above it to compute") {
  LoadState state(1, 5, {1}, false, true, kWhole);
  Deliver(&state, 0, 1);
  Deliver(&state, 0, 3);
  REQUIRE(state.ClaimForDecode(0, 4));
  state.MustCompute(0, 2);
  CHECK(state.block(0, 1) == BlockState::kSymbols);
  CHECK(state.block(0, 3) == BlockState::kMissing);
  CHECK_FALSE(state.Wanted(0, 2));
  CHECK_FALSE(state.ClaimForDecode(0, 3));
  state.FinishDecode(0, 4, true);  // too late
  CHECK(state.block(0, 4) == BlockState::kMissing);
  std::string steps;
  while (!state.done()) absl::StrAppend(&steps, Step(&state), " ");
  CHECK(steps == "P00 A00 F01 A01 P02 A02 P03 A03 P04 ");
}

TEST_CASE("whole columns: a broken stream leaves what is here below the first gap") {
  LoadState state(2, 3, {1, 1}, false, true, kWhole);
  Deliver(&state, 0, 2);
  Deliver(&state, 1, 1);
  Deliver(&state, 1, 2);
  state.ComputeAll();
  CHECK(state.block(0, 2) == BlockState::kMissing);
  std::string steps;
  while (!state.done()) absl::StrAppend(&steps, Step(&state), " ");
  CHECK(steps == "P00 P10 A00 F11 P01 A01 F12 P02 ");
}

// Whatever arrives in whatever order, for codecs that predict.
TEST_CASE("random streams with FINAL end with each block filled exactly once") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 rng(seed);
    const bool whole = rng() % 2;
    const uint32_t columns = 1 + rng() % 5, layers = 1 + rng() % 6;
    std::vector<uint32_t> depth(columns);
    for (uint32_t& d : depth) d = whole ? (rng() % 2 ? 1 : layers) : rng() % (layers + 1);
    const bool has_query = rng() % 2;
    LoadState state(columns, layers, depth, has_query, rng() % 2, whole ? kWhole : kPredicts);
    std::set<std::pair<uint32_t, uint32_t>> filled, decoding;
    std::vector<uint32_t> hidden(columns, 0), computed_from(columns, layers);
    uint32_t query = 0;
    bool alive = true;
    INFO("seed " << seed);
    for (int steps = 0; !state.done(); ++steps) {
      REQUIRE(steps < 100000);
      const uint32_t choice = rng() % 10;
      if (choice == 0 && alive && rng() % 20 == 0) {
        alive = false;
        state.ComputeAll();
      } else if (choice < 5 && alive && layers > 1) {
        const uint32_t t = rng() % columns, l = 1 + rng() % (layers - 1);
        if (rng() % 30 == 0 && state.Wanted(t, l)) state.MustCompute(t, l);
        if (state.ClaimForDecode(t, l)) {
          REQUIRE(filled.count({t, l}) == 0);
          decoding.insert({t, l});
        }
      } else if (choice < 7 && !decoding.empty()) {
        const auto block = *decoding.begin();
        decoding.erase(decoding.begin());
        state.FinishDecode(block.first, block.second, rng() % 8 != 0);
      } else if (const auto op = state.NextOp(); op.has_value()) {
        if (op->kind == Kind::kFinal && rng() % 16 == 0) {
          state.FailFinal(op->column, op->layer);
          continue;
        }
        switch (op->kind) {
          case Kind::kQuery:
            REQUIRE(op->layer == query++);
            for (uint32_t t = 0; t < columns; ++t) REQUIRE(filled.count({t, op->layer}) == 1);
            break;
          case Kind::kProject:
            REQUIRE(hidden[op->column] == op->layer);
            REQUIRE(filled.insert({op->column, op->layer}).second);
            if (op->layer > 0)
              computed_from[op->column] = std::min(computed_from[op->column], op->layer);
            break;
          case Kind::kFinal:
            REQUIRE(op->layer > 0);
            REQUIRE(filled.count({op->column, op->layer - 1}) == 1);
            REQUIRE(filled.insert({op->column, op->layer}).second);
            if (whole) REQUIRE(op->layer < computed_from[op->column]);
            break;
          case Kind::kAttend:
            REQUIRE(hidden[op->column] == op->layer);
            for (uint32_t t = 0; t <= op->column; ++t) REQUIRE(filled.count({t, op->layer}) == 1);
            ++hidden[op->column];
            break;
        }
        state.Finish(*op);
      }
    }
    if (!has_query) CHECK(filled.size() == size_t{columns} * layers);
    CHECK(state.blocks_done() == filled.size());
  }
}

// Whatever arrives in whatever order, and whenever the stream dies: every op is legal, each block
// is filled once, and it ends.
TEST_CASE("random streams end with each block filled exactly once") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 rng(seed);
    const uint32_t columns = 1 + rng() % 5, layers = 1 + rng() % 6;
    std::vector<uint32_t> depth(columns);
    for (uint32_t& d : depth) d = rng() % (layers + 1);
    const bool has_query = rng() % 2;
    LoadState state(columns, layers, depth, has_query, rng() % 2);
    std::set<std::pair<uint32_t, uint32_t>> filled, decoding;
    std::vector<uint32_t> hidden(columns, 0);
    uint32_t query = 0;
    bool alive = true;
    INFO("seed " << seed);
    for (int steps = 0; !state.done(); ++steps) {
      REQUIRE(steps < 100000);
      const uint32_t choice = rng() % 10;
      if (choice == 0 && alive && rng() % 20 == 0) {
        alive = false;
        state.ComputeAll();
      } else if (choice < 5 && alive) {
        const uint32_t t = rng() % columns, l = rng() % layers;
        if (state.ClaimForDecode(t, l)) {
          REQUIRE(filled.count({t, l}) == 0);
          decoding.insert({t, l});
        }
      } else if (choice < 7 && !decoding.empty()) {
        const auto block = *decoding.begin();
        decoding.erase(decoding.begin());
        const bool ok = rng() % 8 != 0;
        state.FinishDecode(block.first, block.second, ok);
        if (ok) REQUIRE(filled.insert(block).second);
      } else if (const auto op = state.NextOp(); op.has_value()) {
        if (op->kind == Kind::kQuery) {
          REQUIRE(op->layer == query++);
          for (uint32_t t = 0; t < columns; ++t) REQUIRE(filled.count({t, op->layer}) == 1);
        } else if (op->kind == Kind::kProject) {
          REQUIRE(hidden[op->column] == op->layer);
          REQUIRE(filled.insert({op->column, op->layer}).second);
        } else {
          REQUIRE(hidden[op->column] == op->layer);
          for (uint32_t t = 0; t <= op->column; ++t) REQUIRE(filled.count({t, op->layer}) == 1);
          ++hidden[op->column];
        }
        state.Finish(*op);
      }
    }
    if (!has_query) CHECK(filled.size() == size_t{columns} * layers);
    CHECK(state.blocks_done() == filled.size());
  }
}

}  // namespace
}  // namespace sparkv

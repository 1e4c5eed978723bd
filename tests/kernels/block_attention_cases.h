// Problems for the attention operators of kernels/block_attention.h, with their answers in f64: one
// set of cases for the scalar twin, the SIMD twins and the CUDA kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/block_attention.h"

namespace sparkv::kernels {

enum class ListKind {
  kDense,
  kAll,       // lists that name every block: the answer of kDense
  kRandom,    // half of the blocks, diagonal and first one always
  kSparse,    // one or two blocks anywhere: early rows may see no key of theirs
  kSomeEmpty  // as kRandom, with every third list empty
};

enum class Poison { kNone, kQueryNan, kKeyNan, kValueNan, kKeyInf, kValueInf };

struct BlockAttentionCase {
  size_t dim = 64, kv_heads = 1, group = 1, rows = 1, begin = 0;
  ListKind lists = ListKind::kDense;
  Poison poison = Poison::kNone;  // of one row, key or value
  float skip_below = 0;
  float spread = 1;         // standard deviation of q and k; scores' is its square
  size_t spare = 0;         // rows of the cache behind the last one that q sees
  bool misaligned = false;  // pages begin 2 bytes behind a cache line
  bool row_major = true;    // q and out [rows][heads][dim], else [heads][rows][dim] with gaps

  std::string Name() const;
  size_t keys() const { return begin + rows; }
  // Multiply-adds of a dense pass, for choosing what a slow target can afford.
  size_t work() const { return kv_heads * group * rows * keys() * dim * 2; }
};

// Every head size, GQA ratio 1, 3, 4 and 8, ragged lengths, one-token blocks, begin offsets, lists
// of every kind and poison; those with work() up to `max_work`.
std::vector<BlockAttentionCase> BlockAttentionCases(size_t max_work = SIZE_MAX);
// Those of at most kDecodeRows rows.
std::vector<BlockAttentionCase> DecodeAttentionCases(size_t max_work = SIZE_MAX);

// Owns what args() points to. Values of q, k and v are f16 numbers, so that a kernel that rounds q
// to f16 loses nothing. What no argument names (the rest of the last page, gaps between heads) is
// NaN.
class BlockAttentionProblem {
 public:
  explicit BlockAttentionProblem(const BlockAttentionCase& c);
  BlockAttentionProblem(const BlockAttentionProblem&) = delete;
  BlockAttentionProblem& operator=(const BlockAttentionProblem&) = delete;

  const BlockAttentionCase& problem() const { return case_; }
  // Outputs are wanted, all of them, and hold a mark until they are written.
  const BlockAttentionArgs& args() const { return args_; }
  BlockAttentionArgs& args() { return args_; }
  void ClearOutputs();

  // Empty when the outputs are right, else what the first wrong one is. A clean row's output may
  // be `tolerance` away for values up to 1 (of a standard normal: up to 4), its log-sum-exp and
  // masses as much; floats of `out` that belong to no row must be untouched.
  std::string Mismatch(double tolerance) const;

 private:
  enum class Seen : uint8_t { kClean, kNan, kAny };  // what a row sees
  struct Answer {
    std::vector<double> out;      // [heads][rows][dim]
    std::vector<Seen> column;     // of out
    std::vector<double> log_sum;  // [heads][rows]
    std::vector<Seen> row;        // [heads][rows]
    std::vector<double> mass;     // as args.mass
    std::vector<double> lost;     // [heads][rows] weight that skip_below may leave out
  };
  void MakeLists();
  void Spoil();
  void Solve();
  float KeyAt(size_t key, size_t kv_head, size_t i) const;
  float ValueAt(size_t key, size_t kv_head, size_t i) const;

  BlockAttentionCase case_;
  BlockAttentionArgs args_;
  std::vector<float> q_, out_, log_sum_, mass_;
  std::vector<std::vector<uint16_t>> k_pages_, v_pages_;
  std::vector<const uint16_t*> k_, v_;
  std::vector<uint32_t> list_begin_, list_blocks_;
  Answer answer_;
};

}  // namespace sparkv::kernels

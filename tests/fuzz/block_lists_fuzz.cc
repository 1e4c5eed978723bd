// Lists of key blocks from outside: refused, or walked without leaving the cache, with the scalar
// twin's answer.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/block_attention.h"
#include "kernels/half.h"

using namespace sparkv::kernels;

namespace {

constexpr size_t kDim = 64;

void Compare(const std::vector<float>& got, const std::vector<float>& want, float limit) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || std::fabs(got[i] - want[i]) <= limit) continue;
    std::abort();
  }
}

}  // namespace

// Bytes: kv_heads, group, rows, begin (2 each of little endian), then 32-bit words: the beginnings
// of the lists, and their blocks.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t head[6] = {};
  std::memcpy(head, data, std::min<size_t>(size, sizeof(head)));
  const size_t kv_heads = 1 + head[0] % 2, group = 1 + head[1] % 3, heads = kv_heads * group;
  const size_t rows = (head[2] | head[3] << 8) % 200, before = (head[4] | head[5] << 8) % 300;
  const size_t tokens = before + rows, pages = (tokens + kKeyBlock - 1) / kKeyBlock;
  size_t at = sizeof(head);
  const auto word = [&]() -> uint32_t {
    uint32_t value = 0;
    if (at >= size) return 0;
    std::memcpy(&value, data + at, std::min<size_t>(4, size - at));
    at += 4;
    return value;
  };
  // Each page in memory of its own, so that a sanitizer sees what is read behind it.
  std::vector<std::vector<uint16_t>> memory(2 * pages);
  std::vector<const uint16_t*> pointers;
  for (size_t p = 0; p < memory.size(); ++p) {
    memory[p].resize(kv_heads * kKeyBlock * kDim);
    for (size_t i = 0; i < memory[p].size(); ++i)
      memory[p][i] = FloatToHalf(static_cast<float>((i * 7 + p * 13) % 31) / 31 - 0.5f);
    pointers.push_back(memory[p].data());
  }
  std::vector<float> q(heads * rows * kDim);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 29) / 29 - 0.5f;
  BlockAttentionArgs args;
  args.kv = {.k = pointers.data(),
             .v = pointers.data() + pages,
             .pages = pages,
             .tokens = tokens,
             .kv_heads = kv_heads,
             .dim = kDim,
             .head_stride = kKeyBlock * kDim};
  args.q = q.data();
  args.q_head_stride = args.out_head_stride = kDim;
  args.q_row_stride = args.out_row_stride = heads * kDim;
  args.heads = heads;
  args.rows = rows;
  args.begin = before;
  const size_t lists = heads * args.query_blocks();
  std::vector<uint32_t> begin(lists + 1), blocks(lists * args.key_blocks());
  for (uint32_t& x : begin) x = word();
  for (uint32_t& x : blocks) x = word();
  args.lists = {begin.data(), blocks.data()};
  std::vector<float> out(q.size()), log_sum(heads * rows), mass(blocks.size(), 0.0f);
  std::vector<float> want(out), want_log_sum(log_sum), want_mass(mass);
  args.out = out.data();
  args.log_sum = log_sum.data();
  args.mass = mass.data();
  if (!CheckBlockAttention(args).ok()) {
    if (BlockSparseAttention(args).ok() || PagedDecodeAttention(args).ok() ||
        BlockSparseAttentionScalar(args).ok())
      std::abort();
    return 0;
  }
  BlockAttentionArgs scalar = args;
  scalar.out = want.data();
  scalar.log_sum = want_log_sum.data();
  scalar.mass = want_mass.data();
  if (!BlockSparseAttentionScalar(scalar).ok() || !BlockSparseAttention(args).ok()) std::abort();
  Compare(out, want, 1e-5f);
  Compare(log_sum, want_log_sum, 1e-5f);
  Compare(mass, want_mass, 1e-5f);
  if (rows > kDecodeRows) return 0;
  if (!PagedDecodeAttention(args).ok()) std::abort();
  Compare(out, want, 1e-5f);
  Compare(log_sum, want_log_sum, 1e-5f);
  Compare(mass, want_mass, 1e-5f);
  return 0;
}

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention_decode.h"
#include "kernels/block_attention.h"

namespace sparkv::kernels {
namespace {

static_assert(kKeyBlock <= kAttendRows);

// Visited pages of one part of the work. Fixed, so that a row's sums do not depend on the threads.
constexpr size_t kPartPages = 8;

// The softmax over one part of a head's list, for all of its rows.
class Decode {
 public:
  explicit Decode(const BlockAttentionArgs& args)
      : a_(args),
        dim_(args.kv.dim),
        group_(args.heads / args.kv.kv_heads),
        // The share of a page is known where it is a part of its own.
        part_pages_(args.mass == nullptr ? kPartPages : 1),
        shared_(args.kv.kv_heads) {
    size_t longest = 0;
    for (size_t h = 0; h < a_.heads; ++h) longest = std::max(longest, Count(h));
    parts_ = std::max<size_t>(1, (longest + part_pages_ - 1) / part_pages_);
    for (size_t h = 0; h < a_.kv.kv_heads; ++h) shared_[h] = OneList(h) ? 1 : 0;
    const size_t states = parts_ * a_.heads * a_.rows;
    max_.assign(states, -INFINITY);
    sum_.assign(states, 0);
    mean_.assign(states * dim_, 0);
  }

  size_t units() const { return a_.kv.kv_heads * parts_; }

  // Unit: one part of the keys of one KV head.
  void RunPart(size_t unit) {
    const size_t kv_head = unit / parts_, part = unit % parts_;
    std::vector<float> q(group_ * a_.rows * dim_);
    for (size_t i = 0; i < group_ * a_.rows; ++i) {
      const auto [row, j] = RowOf(kv_head, i);
      std::memcpy(&q[i * dim_],
                  a_.q + (kv_head * group_ + j) * a_.q_head_stride + row * a_.q_row_stride,
                  dim_ * sizeof(float));
    }
    const size_t heads = shared_[kv_head] != 0 ? 1 : group_;
    for (size_t j = 0; j < heads; ++j) {
      const size_t count = Count(kv_head * group_ + j);
      const size_t end = std::min(count, (part + 1) * part_pages_);
      for (size_t entry = part * part_pages_; entry < end; ++entry)
        AddPage(kv_head, part, j, Page(kv_head * group_ + j, entry), q.data());
    }
  }

  void Finish(size_t h) {
    if (a_.mass != nullptr) {
      const bool dense = a_.lists.begin == nullptr;
      std::fill_n(Mass(h), dense ? a_.key_blocks() : Count(h), 0.0f);
    }
    size_t finite = 0;
    for (size_t row = 0; row < a_.rows; ++row) {
      float* out = a_.out + h * a_.out_head_stride + row * a_.out_row_stride;
      float highest = -INFINITY, sum = 0;
      for (size_t part = 0; part < parts_; ++part)
        highest = std::max(highest, max_[State(h, part, row)]);
      std::fill_n(out, dim_, 0.0f);
      for (size_t part = 0; part < parts_; ++part) {
        const size_t state = State(h, part, row);
        if (sum_[state] == 0.0f) continue;  // it sees no key of this part
        const float weight = std::exp(max_[state] - highest);
        sum += weight * sum_[state];
        for (size_t i = 0; i < dim_; ++i) out[i] += weight * mean_[state * dim_ + i];
      }
      if (sum != 0.0f) {
        for (size_t i = 0; i < dim_; ++i) out[i] /= sum;
      }
      const float log_sum = sum == 0.0f ? -INFINITY : highest + std::log(sum);
      if (a_.log_sum != nullptr) a_.log_sum[h * a_.rows + row] = log_sum;
      if (a_.mass == nullptr || !std::isfinite(log_sum)) continue;
      ++finite;
      for (size_t j = 0; j < Count(h); ++j) {
        const size_t state = State(h, j, row);
        if (sum_[state] != 0.0f) Mass(h)[j] += sum_[state] / sum * std::exp(max_[state] - highest);
      }
    }
    if (a_.mass == nullptr) return;
    for (size_t j = 0; j < Count(h) && finite != 0; ++j) Mass(h)[j] /= static_cast<float>(finite);
  }

 private:
  size_t Count(size_t h) const {
    return a_.lists.begin == nullptr ? a_.key_blocks() : a_.lists.begin[h + 1] - a_.lists.begin[h];
  }
  size_t Page(size_t h, size_t entry) const {
    return a_.lists.begin == nullptr ? entry : a_.lists.blocks[a_.lists.begin[h] + entry];
  }
  float* Mass(size_t h) const {
    return a_.lists.begin == nullptr ? a_.mass + h * a_.key_blocks() : a_.mass + a_.lists.begin[h];
  }
  // Whether all heads of the group visit the same pages, and can share each load.
  bool OneList(size_t kv_head) const {
    if (a_.lists.begin == nullptr) return true;
    const size_t h = kv_head * group_;
    const uint32_t* list = a_.lists.blocks + a_.lists.begin[h];
    for (size_t j = 1; j < group_; ++j) {
      if (Count(h + j) != Count(h) ||
          !std::equal(list, list + Count(h), a_.lists.blocks + a_.lists.begin[h + j]))
        return false;
    }
    return true;
  }

  // Queries of a KV head: [rows][group] when they share their pages, else [group][rows].
  struct Query {
    size_t row, head;
  };
  Query RowOf(size_t kv_head, size_t i) const {
    if (shared_[kv_head] != 0) return {i / group_, i % group_};
    return {i % a_.rows, i / a_.rows};
  }
  size_t State(size_t h, size_t part, size_t row) const {
    const size_t kv_head = h / group_, j = h % group_;
    const size_t i = shared_[kv_head] != 0 ? row * group_ + j : j * a_.rows + row;
    return (kv_head * parts_ + part) * group_ * a_.rows + i;
  }

  // Adds a page to the rows of head j of the group, or to those of all heads that share it.
  void AddPage(size_t kv_head, size_t part, size_t j, size_t page, const float* q) {
    const bool shared = shared_[kv_head] != 0;
    const size_t per_row = shared ? group_ : 1, first = shared ? 0 : j * a_.rows;
    const size_t low = page * kKeyBlock;
    const uint16_t* k = a_.kv.k[page] + kv_head * a_.kv.head_stride;
    const uint16_t* v = a_.kv.v[page] + kv_head * a_.kv.head_stride;
    const auto attend = [&](size_t row, size_t rows, size_t keys) {
      const size_t i = first + row * per_row;
      const size_t state = (kv_head * parts_ + part) * group_ * a_.rows + i;
      AttendRowsF16(q + i * dim_, rows * per_row, k, v, keys, dim_, a_.scale,
                    {&max_[state], &sum_[state], &mean_[state * dim_]});
    };
    // Rows that see a part of the page one by one, the others together.
    size_t row = low <= a_.begin ? 0 : std::min(a_.rows, low - a_.begin);
    for (; row < a_.rows && a_.begin + row + 1 < low + kKeyBlock; ++row)
      attend(row, 1, a_.begin + row + 1 - low);
    if (row < a_.rows) attend(row, a_.rows - row, kKeyBlock);
  }

  const BlockAttentionArgs& a_;
  const size_t dim_, group_, part_pages_;
  size_t parts_ = 1;
  std::vector<uint8_t> shared_;          // [kv_heads]
  std::vector<float> max_, sum_, mean_;  // [kv_heads][parts][group * rows]([dim])
};

}  // namespace

absl::Status PagedDecodeAttention(const BlockAttentionArgs& a, const RunUnits& run) {
  if (absl::Status s = CheckBlockAttention(a); !s.ok()) return s;
  if (a.rows > kDecodeRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: rows is ", a.rows, ", at most ", kDecodeRows, " to decode"));
  }
  if (a.rows == 0) return absl::OkStatus();
  const RunUnits each = OrInTurn(run);
  Decode decode(a);
  each(decode.units(), [&](size_t unit) { decode.RunPart(unit); });
  each(a.heads, [&](size_t head) { decode.Finish(head); });
  return absl::OkStatus();
}

}  // namespace sparkv::kernels

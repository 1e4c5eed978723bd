#include "tests/kernels/block_attention_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "kernels/half.h"

namespace sparkv::kernels {
namespace {

constexpr float kMark = -7.25f;
constexpr uint16_t kHalfNan = 0x7E00, kHalfInf = 0x7C00;
constexpr size_t kGap = 24;  // elements or floats between heads that nobody may use

float F16(float value) { return HalfToFloat(FloatToHalf(value)); }

const char* Word(ListKind kind) {
  constexpr const char* kWords[] = {"dense", "all", "random", "sparse", "some empty"};
  return kWords[static_cast<size_t>(kind)];
}

const char* Word(Poison poison) {
  constexpr const char* kWords[] = {
      "", ", NaN query", ", NaN key", ", NaN value", ", infinite key", ", infinite value"};
  return kWords[static_cast<size_t>(poison)];
}

}  // namespace

std::string BlockAttentionCase::Name() const {
  std::ostringstream s;
  s << "dim " << dim << ", " << kv_heads << " x " << group << " heads, " << rows << " rows behind "
    << begin << ", " << Word(lists) << Word(poison);
  if (skip_below > 0) s << ", skip below " << skip_below;
  if (spread != 1) s << ", spread " << spread;
  if (spare != 0) s << ", " << spare << " spare";
  if (misaligned) s << ", misaligned";
  if (!row_major) s << ", heads apart";
  return s.str();
}

std::vector<BlockAttentionCase> BlockAttentionCases(size_t max_work) {
  std::vector<BlockAttentionCase> all;
  // Head sizes and GQA ratios, each with a ragged last block and a history that ends inside one.
  for (const size_t dim : {64, 80, 96, 128, 256}) {
    for (const size_t group : {1, 3, 4, 8}) {
      const bool odd = group == 3 || group == 8;
      all.push_back({.dim = dim, .group = group, .rows = 37, .begin = 70, .misaligned = odd});
      all.push_back({.dim = dim,
                     .kv_heads = 2,
                     .group = group,
                     .rows = 150,
                     .begin = 45,
                     .lists = ListKind::kRandom,
                     .misaligned = !odd,
                     .row_major = odd});
    }
  }
  // Every edge of blocks and tiles.
  for (const size_t begin : {0, 1, 63, 64, 65, 255, 256, 300}) {
    for (const size_t rows : {1, 2, 7, 64, 127, 128, 129}) {
      all.push_back({.rows = rows, .begin = begin, .row_major = begin % 2 == 0});
    }
  }
  for (const ListKind lists :
       {ListKind::kAll, ListKind::kRandom, ListKind::kSparse, ListKind::kSomeEmpty}) {
    for (const size_t begin : {0, 64, 330}) {
      for (const size_t rows : {1, 128, 270}) {
        all.push_back(
            {.kv_heads = 2, .group = 3, .rows = rows, .begin = begin, .lists = lists, .spare = 70});
      }
    }
  }
  all.push_back({.rows = 0, .begin = 10});
  all.push_back({.rows = 40, .begin = 90, .spread = 12});  // scores up to a thousand apart
  all.push_back(
      {.rows = 200, .begin = 500, .lists = ListKind::kRandom, .spread = 5, .row_major = false});
  for (const float skip : {1.0f, 4.0f, 10.0f}) {
    for (const ListKind lists : {ListKind::kDense, ListKind::kRandom}) {
      all.push_back(
          {.group = 3, .rows = 200, .begin = 400, .lists = lists, .skip_below = skip, .spread = 2});
    }
  }
  for (const Poison poison : {Poison::kQueryNan, Poison::kKeyNan, Poison::kValueNan,
                              Poison::kKeyInf, Poison::kValueInf}) {
    for (const ListKind lists : {ListKind::kDense, ListKind::kRandom}) {
      all.push_back({.group = 3, .rows = 90, .begin = 33, .lists = lists, .poison = poison});
    }
    all.push_back({.dim = 128, .rows = 140, .begin = 128, .poison = poison, .spare = 9});
  }
  std::erase_if(all, [&](const BlockAttentionCase& c) { return c.work() > max_work; });
  return all;
}

std::vector<BlockAttentionCase> DecodeAttentionCases(size_t max_work) {
  std::vector<BlockAttentionCase> all;
  for (const size_t dim : {64, 80, 96, 128, 256}) {
    for (const size_t group : {1, 3, 4, 8}) {
      for (const size_t rows : {1, 5}) {
        all.push_back({.dim = dim,
                       .kv_heads = 2,
                       .group = group,
                       .rows = rows,
                       .begin = 190,
                       .misaligned = group != 4,
                       .row_major = group != 3});
      }
    }
  }
  for (const size_t begin : {0, 1, 62, 63, 64, 511, 512, 1100}) {
    for (const size_t rows : {1, 2, 16, 33, 64})
      all.push_back({.group = 3, .rows = rows, .begin = begin, .spare = begin % 3});
  }
  for (const ListKind lists :
       {ListKind::kAll, ListKind::kRandom, ListKind::kSparse, ListKind::kSomeEmpty}) {
    for (const size_t rows : {1, 9, 64}) {
      all.push_back(
          {.kv_heads = 2, .group = 3, .rows = rows, .begin = 1300, .lists = lists, .spare = 70});
    }
  }
  all.push_back({.rows = 0, .begin = 10});
  all.push_back({.rows = 4, .begin = 900, .spread = 12});
  all.push_back({.group = 3, .rows = 3, .begin = 900, .skip_below = 4, .spread = 2});
  for (const Poison poison : {Poison::kQueryNan, Poison::kKeyNan, Poison::kValueNan,
                              Poison::kKeyInf, Poison::kValueInf}) {
    for (const ListKind lists : {ListKind::kDense, ListKind::kRandom})
      all.push_back({.group = 3, .rows = 21, .begin = 600, .lists = lists, .poison = poison});
  }
  std::erase_if(all, [&](const BlockAttentionCase& c) { return c.work() > max_work; });
  return all;
}

BlockAttentionProblem::BlockAttentionProblem(const BlockAttentionCase& c) : case_(c) {
  const size_t heads = c.kv_heads * c.group, tokens = c.keys() + c.spare;
  const size_t pages = (tokens + kKeyBlock - 1) / kKeyBlock;
  std::mt19937 rng(static_cast<uint32_t>(c.dim * 131 + c.begin * 31 + c.rows * 7 + c.group));
  std::normal_distribution<float> normal;
  const size_t row = c.row_major ? heads * c.dim : c.dim;
  const size_t head = c.row_major ? c.dim : c.rows * c.dim + kGap;
  const size_t floats = c.row_major ? c.rows * row : heads * head;
  q_.assign(floats, std::numeric_limits<float>::quiet_NaN());
  for (size_t h = 0; h < heads; ++h) {
    for (size_t r = 0; r < c.rows; ++r) {
      for (size_t i = 0; i < c.dim; ++i) q_[h * head + r * row + i] = F16(normal(rng) * c.spread);
    }
  }
  const size_t head_stride = kKeyBlock * c.dim + kGap, skip = c.misaligned ? 1 : 0;
  for (auto [pages_of, pointers, spread] :
       {std::tuple{&k_pages_, &k_, c.spread}, std::tuple{&v_pages_, &v_, 1.0f}}) {
    for (size_t p = 0; p < pages; ++p) {
      std::vector<uint16_t>& page = pages_of->emplace_back(c.kv_heads * head_stride + skip);
      std::fill(page.begin(), page.end(), kHalfNan);
      for (size_t h = 0; h < c.kv_heads; ++h) {
        for (size_t key = 0; key < kKeyBlock && p * kKeyBlock + key < tokens; ++key) {
          uint16_t* to = page.data() + skip + h * head_stride + key * c.dim;
          for (size_t i = 0; i < c.dim; ++i) to[i] = FloatToHalf(normal(rng) * spread);
        }
      }
    }
    for (const std::vector<uint16_t>& page : *pages_of) pointers->push_back(page.data() + skip);
  }
  args_.kv = {.k = k_.data(),
              .v = v_.data(),
              .pages = pages,
              .tokens = tokens,
              .kv_heads = c.kv_heads,
              .dim = c.dim,
              .head_stride = head_stride};
  args_.q = q_.data();
  args_.q_head_stride = args_.out_head_stride = head;
  args_.q_row_stride = args_.out_row_stride = row;
  args_.heads = heads;
  args_.rows = c.rows;
  args_.begin = c.begin;
  args_.scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  args_.skip_below = c.skip_below;
  if (c.lists != ListKind::kDense) MakeLists();
  Spoil();
  out_.resize(floats);
  log_sum_.resize(heads * c.rows);
  mass_.resize(c.lists == ListKind::kDense ? heads * args_.query_blocks() * args_.key_blocks()
                                           : list_blocks_.size());
  args_.out = out_.data();
  args_.log_sum = log_sum_.data();
  args_.mass = mass_.data();
  ClearOutputs();
  Solve();
}

void BlockAttentionProblem::ClearOutputs() {
  for (std::vector<float>* x : {&out_, &log_sum_, &mass_}) std::fill(x->begin(), x->end(), kMark);
}

void BlockAttentionProblem::MakeLists() {
  std::mt19937 rng(static_cast<uint32_t>(case_.rows * 17 + case_.begin));
  list_begin_.push_back(0);
  for (size_t row = 0; row < args_.heads * args_.query_blocks(); ++row) {
    const size_t last =
        std::min(case_.rows, (row % args_.query_blocks() + 1) * kQueryBlock) + case_.begin - 1;
    const uint32_t blocks = static_cast<uint32_t>(last / kKeyBlock) + 1;
    const uint32_t one = rng() % blocks, two = rng() % blocks;
    for (uint32_t b = 0; b < blocks; ++b) {
      bool visit = case_.lists == ListKind::kAll;
      if (case_.lists == ListKind::kSparse) visit = b == one || b == two;
      if (case_.lists == ListKind::kRandom || case_.lists == ListKind::kSomeEmpty) {
        visit = b == 0 || b + 2 >= blocks || rng() % 2 == 0;
        if (case_.lists == ListKind::kSomeEmpty && row % 3 == 1) visit = false;
      }
      if (visit) list_blocks_.push_back(b);
    }
    list_begin_.push_back(static_cast<uint32_t>(list_blocks_.size()));
  }
  args_.lists = {list_begin_.data(), list_blocks_.data()};
}

void BlockAttentionProblem::Spoil() {
  // A key in the middle of what the rows see, so that some of them see it and some do not.
  const size_t row = case_.rows / 2, key = case_.begin + row, column = case_.dim / 3;
  const size_t skip = case_.misaligned ? 1 : 0;
  const auto at = [&](std::vector<std::vector<uint16_t>>& pages) -> uint16_t& {
    return pages[key / kKeyBlock][skip + key % kKeyBlock * case_.dim + column];
  };
  switch (case_.poison) {
    case Poison::kNone:
      break;
    case Poison::kQueryNan:
      q_[row * args_.q_row_stride + column] = std::numeric_limits<float>::quiet_NaN();
      break;
    case Poison::kKeyNan:
      at(k_pages_) = kHalfNan;
      break;
    case Poison::kValueNan:
      at(v_pages_) = kHalfNan;
      break;
    case Poison::kKeyInf:
      at(k_pages_) = kHalfInf;
      break;
    case Poison::kValueInf:
      at(v_pages_) = kHalfInf;
      break;
  }
}

float BlockAttentionProblem::KeyAt(size_t key, size_t kv_head, size_t i) const {
  return HalfToFloat(
      k_[key / kKeyBlock][kv_head * args_.kv.head_stride + key % kKeyBlock * case_.dim + i]);
}

float BlockAttentionProblem::ValueAt(size_t key, size_t kv_head, size_t i) const {
  return HalfToFloat(
      v_[key / kKeyBlock][kv_head * args_.kv.head_stride + key % kKeyBlock * case_.dim + i]);
}

void BlockAttentionProblem::Solve() {
  const size_t dim = case_.dim, heads = args_.heads, rows = case_.rows, keys = case_.keys();
  const size_t query_blocks = args_.query_blocks(), key_blocks = args_.key_blocks();
  answer_.out.assign(heads * rows * dim, 0);
  answer_.column.assign(answer_.out.size(), Seen::kClean);
  answer_.log_sum.assign(heads * rows, -INFINITY);
  answer_.row.assign(heads * rows, Seen::kClean);
  answer_.lost.assign(heads * rows, 0);
  answer_.mass.assign(mass_.size(), 0);
  std::vector<double> k(keys * dim), v(keys * dim), score(keys), share(key_blocks);
  for (size_t h = 0; h < heads; ++h) {
    if (h % case_.group == 0) {
      for (size_t i = 0; i < keys * dim; ++i) {
        k[i] = KeyAt(i / dim, h / case_.group, i % dim);
        v[i] = ValueAt(i / dim, h / case_.group, i % dim);
      }
    }
    for (size_t block = 0; block < query_blocks; ++block) {
      std::vector<size_t> visited;
      const size_t list = h * query_blocks + block;
      const size_t end = std::min(rows, (block + 1) * kQueryBlock);
      if (args_.lists.begin == nullptr) {
        for (size_t b = 0; b * kKeyBlock < case_.begin + end; ++b) visited.push_back(b);
      } else {
        visited.assign(list_blocks_.begin() + list_begin_[list],
                       list_blocks_.begin() + list_begin_[list + 1]);
      }
      share.assign(visited.size(), 0);
      size_t finite = 0;
      for (size_t r = block * kQueryBlock; r < end; ++r) {
        const float* q = args_.q + h * args_.q_head_stride + r * args_.q_row_stride;
        const size_t row = h * rows + r, sees = case_.begin + r + 1;
        double max = -INFINITY, sum = 0;
        Seen& seen = answer_.row[row];
        const auto each_key = [&](auto&& fn) {
          for (size_t j = 0; j < visited.size(); ++j) {
            const size_t from = visited[j] * kKeyBlock;
            for (size_t key = from; key < std::min(sees, from + kKeyBlock); ++key) fn(j, key);
          }
        };
        each_key([&](size_t, size_t key) {
          double s = 0;
          bool infinite = false;
          for (size_t i = 0; i < dim; ++i) {
            infinite |= std::isinf(k[key * dim + i]);
            s += double{q[i]} * k[key * dim + i];
          }
          score[key] = s * double{args_.scale};
          if (infinite && seen == Seen::kClean) seen = Seen::kAny;
          if (!infinite && std::isnan(s)) seen = Seen::kNan;
          max = std::max(max, score[key]);
        });
        if (seen != Seen::kClean) {
          std::fill_n(&answer_.column[row * dim], dim, seen);
          continue;
        }
        if (max == -INFINITY) continue;
        each_key([&](size_t, size_t key) { sum += std::exp(score[key] - max); });
        ++finite;
        answer_.log_sum[row] = max + std::log(sum);
        each_key([&](size_t j, size_t key) {
          const double weight = std::exp(score[key] - max) / sum;
          share[j] += weight;
          if (case_.skip_below > 0 && score[key] < max - double{case_.skip_below})
            answer_.lost[row] += weight;
          for (size_t i = 0; i < dim; ++i) {
            const double value = v[key * dim + i];
            const size_t to = row * dim + i;
            if (std::isnan(value)) {
              answer_.column[to] = case_.skip_below > 0 ? Seen::kAny : Seen::kNan;
            } else if (std::isinf(value)) {
              answer_.column[to] = Seen::kAny;
            }
            answer_.out[to] += weight * value;
          }
        });
      }
      for (size_t j = 0; j < visited.size(); ++j) {
        const size_t to =
            args_.lists.begin == nullptr ? list * key_blocks + visited[j] : list_begin_[list] + j;
        answer_.mass[to] = finite == 0 ? 0 : share[j] / static_cast<double>(finite);
      }
    }
  }
}

std::string BlockAttentionProblem::Mismatch(double tolerance) const {
  std::ostringstream s;
  const size_t dim = case_.dim, rows = case_.rows;
  std::vector<bool> owned(out_.size(), false);
  for (size_t row = 0; row < args_.heads * rows; ++row) {
    const size_t h = row / rows, r = row % rows;
    s << "head " << h << ", row " << r;
    for (size_t i = 0; i < dim; ++i) {
      const size_t at = h * args_.out_head_stride + r * args_.out_row_stride + i;
      owned[at] = true;
      const double want = answer_.out[row * dim + i], got = out_[at];
      // A value is 4 at most, so what was left out moves the mean by that share of 8.
      const double limit = tolerance + 8 * answer_.lost[row];
      const Seen seen = answer_.column[row * dim + i];
      if (seen == Seen::kAny) continue;
      if (seen == Seen::kNan ? !std::isnan(got) : !(std::fabs(got - want) <= limit)) {
        s << ", column " << i << ": " << got << ", not " << (seen == Seen::kNan ? NAN : want);
        return s.str();
      }
    }
    const double want = answer_.log_sum[row], got = log_sum_[row];
    if (args_.log_sum != nullptr && answer_.row[row] != Seen::kAny) {
      const double limit = tolerance * std::max(1.0, std::fabs(want));
      const bool right = answer_.row[row] == Seen::kNan ? std::isnan(got)
                         : std::isinf(want)             ? got == want
                                                        : std::fabs(got - want) <= limit;
      if (!right) {
        s << ": log-sum-exp " << got << ", not " << (answer_.row[row] == Seen::kNan ? NAN : want);
        return s.str();
      }
    }
    s.str("");
  }
  for (size_t i = 0; i < out_.size(); ++i) {
    if (owned[i] || out_[i] == kMark) continue;
    s << "float " << i << " of out belongs to no row and was written: " << out_[i];
    return s.str();
  }
  // Infinite keys make a query block's share of rows with a finite log-sum-exp a matter of
  // rounding.
  if (args_.mass == nullptr || case_.poison == Poison::kKeyInf) return "";
  for (size_t i = 0; i < mass_.size(); ++i) {
    if (std::fabs(mass_[i] - answer_.mass[i]) <= tolerance) continue;
    s << "mass " << i << ": " << mass_[i] << ", not " << answer_.mass[i];
    return s.str();
  }
  return "";
}

}  // namespace sparkv::kernels

#include "common/llm/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace sparkv {
namespace {

// Up to here a scan for the lowest rank beats a heap.
constexpr size_t kShortWord = 48;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe() { std::fill(std::begin(byte_ids_), std::end(byte_ids_), kNoToken); }

void Bpe::AddMerge(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  merges_.emplace(PairKey(left, right), Merge{rank, merged});
}

const Bpe::Merge* Bpe::Find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

bool Bpe::Encode(std::string_view word, const CancelledFn& cancelled,
                 std::vector<int32_t>* out) const {
  if (word.size() > kShortWord) return EncodeLong(word, cancelled, out);
  EncodeShort(word, out);
  return true;
}

void Bpe::EncodeShort(std::string_view word, std::vector<int32_t>* out) const {
  int32_t ids[kShortWord];
  Merge next[kShortWord];  // next[i]: the merge of ids[i] and ids[i + 1]
  size_t n = word.size();
  if (n == 0) return;
  const auto look_up = [&](size_t i) {
    const Merge* merge = i + 1 < n ? Find(ids[i], ids[i + 1]) : nullptr;
    next[i] = merge != nullptr ? *merge : Merge{kNoRank, kNoToken};
  };
  for (size_t i = 0; i < n; ++i) ids[i] = byte_ids_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i < n; ++i) look_up(i);
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < n; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNoRank) break;
    ids[best] = next[best].id;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    std::copy(next + best + 2, next + n, next + best + 1);
    --n;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  for (size_t i = 0; i < n; ++i) {
    if (ids[i] != kNoToken) out->push_back(ids[i]);
  }
}

bool Bpe::EncodeLong(std::string_view word, const CancelledFn& cancelled,
                     std::vector<int32_t>* out) const {
  constexpr size_t kPollPairs = 1 << 16;
  constexpr int32_t kNowhere = -1;
  constexpr int32_t kGone = -2;
  struct Symbol {
    int32_t id;  // kGone: merged into the symbol before it
    int32_t previous;
    int32_t next;
  };
  const auto n = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (int32_t i = 0; i < n; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < n ? i + 1 : kNowhere};
  }
  const auto find = [&](int32_t left) -> const Merge* {
    if (symbols[left].next == kNowhere) return nullptr;
    return Find(symbols[left].id, symbols[symbols[left].next].id);
  };
  // rank << 32 | index of the left symbol. An entry is stale when its pair has changed, thus has
  // another rank: a rank belongs to one pair.
  std::vector<uint64_t> entries;
  entries.reserve(word.size());
  const auto entry = [](const Merge& merge, int32_t left) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(merge.rank)) << 32) |
           static_cast<uint32_t>(left);
  };
  for (int32_t i = 0; i < n; ++i) {
    if (const Merge* merge = find(i)) entries.push_back(entry(*merge, i));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(entries));
  size_t pairs = 0;
  while (!queue.empty()) {
    if (cancelled && ++pairs % kPollPairs == 0 && cancelled()) return false;
    const uint64_t best = queue.top();
    queue.pop();
    const auto at = static_cast<int32_t>(best & 0xFFFFFFFFu);
    const Merge* merge = find(at);
    if (merge == nullptr || merge->rank != static_cast<int32_t>(best >> 32)) continue;
    Symbol& left = symbols[at];
    Symbol& right = symbols[left.next];
    left.id = merge->id;
    right.id = kGone;
    left.next = right.next;
    if (left.next != kNowhere) symbols[left.next].previous = at;
    if (const Merge* after = find(at)) queue.push(entry(*after, at));
    if (left.previous != kNowhere) {
      if (const Merge* before = find(left.previous)) queue.push(entry(*before, left.previous));
    }
  }
  for (int32_t i = 0; i != kNowhere; i = symbols[i].next) {
    if (symbols[i].id != kNoToken) out->push_back(symbols[i].id);
  }
  return true;
}

}  // namespace sparkv

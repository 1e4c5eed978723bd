#include "common/codec/enc_planes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/bytes.h"
#include "common/codec/bit_io.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_rans.h"
#include "common/codec/residual_common.h"

namespace sparkv {
namespace {

constexpr uint64_t kEscapeCost = 48 * 256;  // of an escape's value, in 1/256 bit

// The step from number to number, modulo `modulo`, that is nearest to 0.
void WriteNumber(uint32_t from, uint32_t to, uint32_t modulo, BitWriter& bits) {
  const auto m = static_cast<int32_t>(modulo);
  int32_t step = static_cast<int32_t>(to) - static_cast<int32_t>(from);
  if (step > (m - 1) / 2) step -= m;
  if (step < -(m / 2)) step += m;
  bits.WriteGamma(ValueToSymbol(step) + 1);
}

void WriteStream(const RansOutput& coded, ByteWriter& out) {
  out.Write<uint32_t>(static_cast<uint32_t>(coded.words.size()));
  for (const uint32_t state : coded.states) out.Write(state);
  for (const uint16_t word : coded.words) out.Write(word);
}

void WriteFirstPlane(const CodecProfile& profile, uint32_t layer, uint32_t runs, uint32_t length,
                     const int16_t* values, ByteWriter& out) {
  const auto frequencies = profile.frequencies();
  std::vector<uint64_t> costs(frequencies.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    const size_t table = i / kProfileSymbols * kProfileSymbols;
    costs[i] = frequencies[i] > 0 ? RansCost(frequencies[i])
                                  : RansCost(frequencies[table + kEscapeSymbol]) + kEscapeCost;
  }
  std::vector<uint8_t> symbols(size_t{runs} * length), table_of_run(runs);
  ByteWriter escapes;
  uint32_t escape_count = 0;
  BitWriter numbers;
  std::array<uint32_t, kProfileSymbols> counts;
  for (uint32_t r = 0; r < runs; ++r) {
    const int16_t* in = values + size_t{r} * length;
    counts.fill(0);
    for (uint32_t i = 0; i < length; ++i) {
      const int32_t v = in[i];
      ++counts[v >= -kMaxSymbolMagnitude && v <= kMaxSymbolMagnitude ? ValueToSymbol(v)
                                                                     : kEscapeSymbol];
    }
    uint32_t present[kProfileSymbols], kinds = 0;
    for (uint32_t s = 0; s < kProfileSymbols; ++s) {
      if (counts[s] > 0) present[kinds++] = s;
    }
    uint64_t best = ~uint64_t{0};
    for (uint32_t t = 0; t < kProfileTables; ++t) {
      const uint64_t* cost = costs.data() + size_t{t} * kProfileSymbols;
      uint64_t sum = 0;
      for (uint32_t i = 0; i < kinds; ++i) sum += counts[present[i]] * cost[present[i]];
      if (sum >= best) continue;
      best = sum;
      table_of_run[r] = static_cast<uint8_t>(t);
    }
    WriteNumber(profile.layer(layer).table[r], table_of_run[r], kProfileTables, numbers);
    const uint32_t* f = frequencies.data() + size_t{table_of_run[r]} * kProfileSymbols;
    for (uint32_t i = 0; i < length; ++i) {
      const int32_t v = in[i];
      uint32_t s = kEscapeSymbol;
      if (v >= -kMaxSymbolMagnitude && v <= kMaxSymbolMagnitude) s = ValueToSymbol(v);
      if (f[s] == 0) s = kEscapeSymbol;
      if (s == kEscapeSymbol) {
        escapes.Write<uint32_t>(r * length + i);
        escapes.Write<int16_t>(in[i]);
        ++escape_count;
      }
      symbols[size_t{r} * length + i] = static_cast<uint8_t>(s);
    }
  }
  out.Write<uint32_t>(escape_count);
  out.WriteBytes(escapes.str());
  out.WriteBytes(numbers.Take());
  WriteStream(RansEncode(symbols, length, table_of_run, frequencies, kProfileSymbols), out);
}

// The three ways of a refinement.
struct Ways {
  std::array<RansSymbol, 3> way;
  Ways() = default;
  Ways(uint32_t a, uint32_t b)
      : way{RansSymbol(a, 0), RansSymbol(b, a), RansSymbol(kRansFrequencySum - a - b, a + b)} {}
};

// Which of the slots' three parts refines `coarse` to `fine`.
uint32_t WayOf(int32_t coarse, int32_t fine) {
  const int32_t change = fine - 3 * coarse;
  if (coarse == 0) return change > 0 ? 0 : change < 0 ? 1 : 2;
  return static_cast<uint32_t>((coarse < 0 ? -change : change) + 1);
}

void WriteThirds(uint32_t runs, uint32_t length, const int16_t* coarse, const int16_t* fine,
                 ByteWriter& out) {
  BitWriter numbers;
  std::vector<std::array<Ways, 2>> ways(runs);  // of a zero, of another value
  uint32_t zero = 0, other = 0;
  for (uint32_t r = 0; r < runs; ++r) {
    uint64_t counts[2][3] = {};
    for (size_t i = size_t{r} * length; i < (size_t{r} + 1) * length; ++i) {
      ++counts[coarse[i] != 0 ? 1 : 0][WayOf(coarse[i], fine[i])];
    }
    const auto cost = [&](int kind, const Ways& w) {
      uint64_t sum = 0;
      for (int i = 0; i < 3; ++i) {
        if (counts[kind][i] == 0) continue;
        if (w.way[i].frequency == 0) return ~uint64_t{0};
        sum += counts[kind][i] * RansCost(w.way[i].frequency);
      }
      return sum;
    };
    // Among equals the number of the run before, which costs one bit.
    uint32_t to = zero;
    uint64_t best = cost(0, Ways(kZeroToOne[to], kZeroToOne[to]));
    for (uint32_t m = 0; m < kZeroModels; ++m) {
      const uint64_t c = cost(0, Ways(kZeroToOne[m], kZeroToOne[m]));
      if (c < best) best = c, to = m;
    }
    WriteNumber(zero, to, kZeroModels, numbers);
    zero = to;
    to = other;
    best = cost(1, Ways(kOther[to].inward, kOther[to].same));
    for (uint32_t m = 0; m < kOtherModels; ++m) {
      const uint64_t c = cost(1, Ways(kOther[m].inward, kOther[m].same));
      if (c < best) best = c, to = m;
    }
    WriteNumber(other, to, kOtherModels, numbers);
    other = to;
    ways[r] = {Ways(kZeroToOne[zero], kZeroToOne[zero]),
               Ways(kOther[other].inward, kOther[other].same)};
  }
  out.WriteBytes(numbers.Take());
  RansOutput coded;
  coded.states.assign(RansLanes(length), kRansLowerBound);
  // rANS is last in, first out.
  for (uint32_t r = runs; r-- > 0;) {
    for (uint32_t j = length; j-- > 0;) {
      const size_t i = size_t{r} * length + j;
      const Ways& w = ways[r][coarse[i] != 0 ? 1 : 0];
      RansPut(w.way[WayOf(coarse[i], fine[i])], &coded.states[j % kRansLanes], &coded.words);
    }
  }
  std::reverse(coded.words.begin(), coded.words.end());
  WriteStream(coded, out);
}

}  // namespace

std::vector<std::string> EmptyPlanes(const CodecInfo& info) {
  std::vector<std::string> planes;
  for (int p = 0; p < info.planes; ++p) {
    ByteWriter out;
    WritePlaneTag(info, p, out);
    planes.push_back(out.Take());
  }
  return planes;
}

std::vector<std::string> WritePlanes(const CodecInfo& info, const CodecProfile& profile,
                                     uint32_t layer, uint32_t tokens, const QuantizedBlock& block) {
  const uint32_t runs = 2 * profile.shape().row();
  const auto planes = static_cast<uint32_t>(info.planes);
  std::vector<std::string> out;
  std::vector<int16_t> coarse, fine(block.symbols.size());
  for (uint32_t p = 0; p < planes; ++p) {
    for (size_t i = 0; i < fine.size(); ++i) {
      fine[i] = static_cast<int16_t>(Coarser(block.symbols[i], planes - 1 - p));
    }
    ByteWriter plane;
    WritePlaneTag(info, static_cast<int>(p), plane);
    if (p == 0) {
      plane.Write<uint16_t>(static_cast<uint16_t>(block.exact_tokens.size()));
      for (const uint16_t t : block.exact_tokens) plane.Write(t);
      for (const uint16_t bits : block.exact) plane.Write(bits);
      WriteFirstPlane(profile, layer, runs, tokens, fine.data(), plane);
    } else {
      WriteThirds(runs, tokens, coarse.data(), fine.data(), plane);
    }
    out.push_back(plane.Take());
    std::swap(coarse, fine);
    fine.resize(coarse.size());
  }
  return out;
}

}  // namespace sparkv

#include "common/codec/enc_planes.h"

#include <algorithm>
#include <utility>
#include <vector>

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
  out.WriteBytes({reinterpret_cast<const uint8_t*>(coded.words.data()), 2 * coded.words.size()});
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
  for (uint32_t r = 0; r < runs; ++r) {
    const int16_t* in = values + size_t{r} * length;
    uint8_t* run = symbols.data() + size_t{r} * length;
    for (uint32_t i = 0; i < length; ++i) {
      // ValueToSymbol, and what is beyond its range becomes the escape.
      const auto zigzag = static_cast<uint16_t>((in[i] * 2) ^ (in[i] >> 15));
      run[i] = static_cast<uint8_t>(std::min<uint16_t>(zigzag, kEscapeSymbol));
    }
    uint32_t counts[2][kProfileSymbols] = {};  // in turn: the same symbol often follows itself
    for (uint32_t i = 0; i < length; ++i) ++counts[i % 2][run[i]];
    uint32_t present[kProfileSymbols], count[kProfileSymbols], kinds = 0;
    for (uint32_t s = 0; s < kProfileSymbols; ++s) {
      const uint32_t n = counts[0][s] + counts[1][s];
      if (n == 0) continue;
      present[kinds] = s;
      count[kinds++] = n;
    }
    uint64_t best = ~uint64_t{0};
    for (uint32_t t = 0; t < kProfileTables; ++t) {
      const uint64_t* cost = costs.data() + size_t{t} * kProfileSymbols;
      uint64_t sum = 0;
      for (uint32_t i = 0; i < kinds; ++i) sum += count[i] * cost[present[i]];
      if (sum >= best) continue;
      best = sum;
      table_of_run[r] = static_cast<uint8_t>(t);
    }
    WriteNumber(profile.layer(layer).table[r], table_of_run[r], kProfileTables, numbers);
    const uint32_t* f = frequencies.data() + size_t{table_of_run[r]} * kProfileSymbols;
    const bool escaped = std::any_of(present, present + kinds,
                                     [f](uint32_t s) { return s == kEscapeSymbol || f[s] == 0; });
    for (uint32_t i = 0; escaped && i < length; ++i) {
      if (run[i] != kEscapeSymbol && f[run[i]] != 0) continue;
      run[i] = kEscapeSymbol;
      escapes.Write<uint32_t>(r * length + i);
      escapes.Write<int16_t>(in[i]);
      ++escape_count;
    }
  }
  out.Write<uint32_t>(escape_count);
  out.WriteBytes(escapes.str());
  out.WriteBytes(numbers.Take());
  WriteStream(RansEncode(symbols, length, table_of_run, frequencies, kProfileSymbols), out);
}

// The ways in which a refinement plane's value can go, as one symbol: what it was, a zero or not,
// and the part of its model's slots.
constexpr uint32_t kWays = 6;

uint8_t WayOf(int16_t coarse, int16_t fine) {
  const auto change = static_cast<int16_t>(fine - 3 * coarse);  // -1..1
  const auto zero = static_cast<int16_t>((change == 0 ? 2 : 0) + (change < 0 ? 1 : 0));
  const auto other = static_cast<int16_t>(4 + (coarse < 0 ? -change : change));
  return static_cast<uint8_t>(coarse == 0 ? zero : other);
}

// Few enough for a byte to count them.
constexpr size_t kStrip = 128;
void CountWays(const uint8_t* ways, uint32_t n, uint32_t* counts) {
  for (uint32_t w = 0; w < kWays; ++w) {
    uint8_t count = 0;
    for (uint32_t i = 0; i < n; ++i) count = static_cast<uint8_t>(count + (ways[i] == w ? 1 : 0));
    counts[w] += count;
  }
}

// The three parts of a model's slots, and what they cost.
struct Model {
  kernels::RansSymbol way[3];
  uint64_t cost[3];
  Model(uint32_t a, uint32_t b)
      : way{kernels::RansSymbol(a, 0), kernels::RansSymbol(b, a),
            kernels::RansSymbol(kRansFrequencySum - a - b, a + b)} {
    for (int i = 0; i < 3; ++i)
      cost[i] = way[i].frequency > 0 ? RansCost(way[i].frequency) : kNever;
  }
  // More than any run can cost.
  static constexpr uint64_t kNever = uint64_t{1} << 40;
  uint64_t Cost(const uint32_t* counts) const {
    return counts[0] * cost[0] + counts[1] * cost[1] + counts[2] * cost[2];
  }
};

const std::vector<Model>& ZeroModels() {
  static const auto* const models = [] {
    auto* m = new std::vector<Model>;
    for (const uint16_t f : kZeroToOne) m->emplace_back(f, f);
    return m;
  }();
  return *models;
}
const std::vector<Model>& OtherModels() {
  static const auto* const models = [] {
    auto* m = new std::vector<Model>;
    for (const OtherModel& o : kOther) m->emplace_back(o.inward, o.same);
    return m;
  }();
  return *models;
}

// Among equals `before`, the number of the run before, which costs one bit, else the first.
uint32_t BestModel(const std::vector<Model>& models, const uint32_t* counts, uint32_t before) {
  uint32_t to = before;
  uint64_t best = models[to].Cost(counts);
  for (uint32_t m = 0; m < models.size(); ++m) {
    const uint64_t cost = models[m].Cost(counts);
    if (cost < best) best = cost, to = m;
  }
  return to;
}

void WriteThirds(uint32_t runs, uint32_t length, const int16_t* coarse, const int16_t* fine,
                 ByteWriter& out) {
  const std::vector<Model>&zeros = ZeroModels(), &others = OtherModels();
  std::vector<uint8_t> ways(size_t{runs} * length);
  std::vector<std::pair<uint8_t, uint8_t>> models(runs);
  BitWriter numbers;
  uint32_t zero = 0, other = 0;
  for (uint32_t r = 0; r < runs; ++r) {
    const size_t begin = size_t{r} * length;
    for (size_t i = begin; i < begin + length; ++i) ways[i] = WayOf(coarse[i], fine[i]);
    uint32_t counts[kWays] = {};
    for (size_t i = begin; i < begin + length; i += kStrip) {
      CountWays(&ways[i], static_cast<uint32_t>(std::min(kStrip, begin + length - i)), counts);
    }
    const uint32_t zero_before = zero, other_before = other;
    zero = BestModel(zeros, counts, zero_before);
    other = BestModel(others, counts + 3, other_before);
    WriteNumber(zero_before, zero, kZeroModels, numbers);
    WriteNumber(other_before, other, kOtherModels, numbers);
    models[r] = {static_cast<uint8_t>(zero), static_cast<uint8_t>(other)};
  }
  out.WriteBytes(numbers.Take());
  RansEncoder encoder(length, ways.size());
  for (uint32_t r = runs; r-- > 0;) {
    kernels::RansSymbol table[kWays];
    std::copy_n(zeros[models[r].first].way, 3, table);
    std::copy_n(others[models[r].second].way, 3, table + 3);
    encoder.PutRun(table, &ways[size_t{r} * length]);
  }
  WriteStream(encoder.Take(), out);
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
  // Values of each plane, the last first: each rounds the one behind it.
  std::vector<std::vector<int16_t>> values(planes);
  values[planes - 1] = block.symbols;
  for (uint32_t p = planes - 1; p-- > 0;) {
    values[p].resize(block.symbols.size());
    for (size_t i = 0; i < block.symbols.size(); ++i) {
      const int16_t fine = values[p + 1][i];
      const auto magnitude =
          static_cast<uint16_t>(static_cast<uint16_t>((fine < 0 ? -fine : fine) + 1) / 3);
      values[p][i] = static_cast<int16_t>(fine < 0 ? -magnitude : magnitude);
    }
  }
  std::vector<std::string> out;
  for (uint32_t p = 0; p < planes; ++p) {
    ByteWriter plane;
    WritePlaneTag(info, static_cast<int>(p), plane);
    if (p == 0) {
      plane.Write<uint16_t>(static_cast<uint16_t>(block.exact_tokens.size()));
      for (const uint16_t t : block.exact_tokens) plane.Write(t);
      for (const uint16_t bits : block.exact) plane.Write(bits);
      WriteFirstPlane(profile, layer, runs, tokens, values[0].data(), plane);
    } else {
      WriteThirds(runs, tokens, values[p - 1].data(), values[p].data(), plane);
    }
    out.push_back(plane.Take());
  }
  return out;
}

}  // namespace sparkv

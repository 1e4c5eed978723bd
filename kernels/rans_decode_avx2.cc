// The AVX2 twin of RansDecode. 32 lanes are four registers. Alphabets of up to 16 symbols find the
// symbol by bisection in registers, larger ones load from the table.
#include "kernels/rans_decode_cpu.h"
#include "kernels/rans_refill_avx2.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

namespace sparkv::kernels::internal {
namespace {
// Four look-ups. Single loads: on Zen 3 a gather takes twice as long, and so it does on Intel CPUs
// whose microcode mends gather data sampling.
SPARKV_AVX2_INLINE __m128i LoadEntries(const RansTable& table, __m128i slots) {
  const auto low = static_cast<uint64_t>(_mm_cvtsi128_si64(slots));
  const auto high = static_cast<uint64_t>(_mm_extract_epi64(slots, 1));
  const __m128i e0 =
      _mm_cvtsi32_si128(static_cast<int>(table.entry[table.symbol_of_slot[low & 0xFFFFFFFF]]));
  const __m128i e1 =
      _mm_insert_epi32(e0, static_cast<int>(table.entry[table.symbol_of_slot[low >> 32]]), 1);
  const __m128i e2 = _mm_insert_epi32(
      e1, static_cast<int>(table.entry[table.symbol_of_slot[high & 0xFFFFFFFF]]), 2);
  return _mm_insert_epi32(e2, static_cast<int>(table.entry[table.symbol_of_slot[high >> 32]]), 3);
}

// The symbol of each lane, in 32 bits.
SPARKV_AVX2_INLINE __m256i StepByLoads(const RansTable& table, __m256i* x, const uint8_t** next) {
  const __m256i slot_mask = _mm256_set1_epi32(kRansFrequencySum - 1);
  const __m256i slots = _mm256_and_si256(*x, slot_mask);
  const __m256i e = _mm256_set_m128i(LoadEntries(table, _mm256_extracti128_si256(slots, 1)),
                                     LoadEntries(table, _mm256_castsi256_si128(slots)));
  const __m256i f = _mm256_add_epi32(_mm256_and_si256(e, slot_mask), _mm256_set1_epi32(1));
  const __m256i in_symbol =
      _mm256_sub_epi32(slots, _mm256_and_si256(_mm256_srli_epi32(e, 12), slot_mask));
  const __m256i s =
      _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srli_epi32(*x, kRansFrequencyBits)), in_symbol);
  *x = Refill(s, next);
  return _mm256_srli_epi32(e, 24);
}

// A table of up to 16 symbols in registers, [8] of 16 bits twice in each.
struct FewTable {
  __m256i even_start, odd_start, even_frequency, odd_frequency;
};
SPARKV_AVX2_INLINE __m256i LoadTwice(const uint16_t* eight) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(eight)));
}

// The same update for 16 lanes; the symbols come in 16 bits, lanes 0-3, 8-11, 4-7, 12-15.
SPARKV_AVX2_INLINE __m256i StepFew(const FewTable& t, __m256i* x0, __m256i* x1,
                                   const uint8_t** next) {
  const __m256i slot_mask = _mm256_set1_epi32(kRansFrequencySum - 1);
  const __m256i slot =
      _mm256_packus_epi32(_mm256_and_si256(*x0, slot_mask), _mm256_and_si256(*x1, slot_mask));
  // The symbol is the last one with start <= slot (absent ones share the start of the next). Its
  // four bits are found from the top; a 16-bit entry i of a register is fetched by the byte numbers
  // 2 * i and 2 * i + 1, and symbol 2 * i is entry i of the even ones.
  const __m256i above = _mm256_sub_epi16(slot, _mm256_set1_epi16(-1));  // start < above
  const __m256i bit3 =
      _mm256_cmpgt_epi16(above, _mm256_shuffle_epi8(t.even_start, _mm256_set1_epi16(0x0908)));
  const __m256i top = _mm256_and_si256(bit3, _mm256_set1_epi16(0x0808));
  const __m256i bit2 = _mm256_cmpgt_epi16(
      above, _mm256_shuffle_epi8(t.even_start, _mm256_or_si256(top, _mm256_set1_epi16(0x0504))));
  const __m256i top2 = _mm256_or_si256(top, _mm256_and_si256(bit2, _mm256_set1_epi16(0x0404)));
  const __m256i bit1 = _mm256_cmpgt_epi16(
      above, _mm256_shuffle_epi8(t.even_start, _mm256_or_si256(top2, _mm256_set1_epi16(0x0302))));
  const __m256i pair = _mm256_or_si256(_mm256_or_si256(top2, _mm256_set1_epi16(0x0100)),
                                       _mm256_and_si256(bit1, _mm256_set1_epi16(0x0202)));
  const __m256i odd_start = _mm256_shuffle_epi8(t.odd_start, pair);
  const __m256i odd = _mm256_cmpgt_epi16(above, odd_start);
  const __m256i start = _mm256_blendv_epi8(_mm256_shuffle_epi8(t.even_start, pair), odd_start, odd);
  const __m256i f = _mm256_blendv_epi8(_mm256_shuffle_epi8(t.even_frequency, pair),
                                       _mm256_shuffle_epi8(t.odd_frequency, pair), odd);
  const __m256i in_symbol = _mm256_sub_epi16(slot, start);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i s0 =
      _mm256_add_epi32(_mm256_mullo_epi32(_mm256_unpacklo_epi16(f, zero),
                                          _mm256_srli_epi32(*x0, kRansFrequencyBits)),
                       _mm256_unpacklo_epi16(in_symbol, zero));
  const __m256i s1 =
      _mm256_add_epi32(_mm256_mullo_epi32(_mm256_unpackhi_epi16(f, zero),
                                          _mm256_srli_epi32(*x1, kRansFrequencyBits)),
                       _mm256_unpackhi_epi16(in_symbol, zero));
  *x0 = Refill(s0, next);
  *x1 = Refill(s1, next);
  return _mm256_and_si256(_mm256_sub_epi16(pair, odd), _mm256_set1_epi16(0xFF));
}

// Whole groups of a run while there is input enough; returns the symbols done.
template <bool kFew>
SPARKV_AVX2_INLINE uint32_t DecodeGroups(const RansTable& table, uint32_t length, int shift,
                                         RansStates* states, const uint8_t** words,
                                         const uint8_t* end, uint8_t* out) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m128i up = _mm_cvtsi32_si128(shift);
  // Bits that a byte's left-hand neighbour would receive from a 16-bit shift are cut off.
  const __m256i keep = _mm256_set1_epi8(static_cast<char>(0xFF << shift));
  const uint8_t* next = *words;
  __m256i* const lanes = reinterpret_cast<__m256i*>(states->x);
  __m256i x0 = _mm256_load_si256(lanes), x1 = _mm256_load_si256(lanes + 1);
  __m256i x2 = _mm256_load_si256(lanes + 2), x3 = _mm256_load_si256(lanes + 3);
  FewTable few{};
  if constexpr (kFew) {
    few = {LoadTwice(table.even_start), LoadTwice(table.odd_start), LoadTwice(table.even_frequency),
           LoadTwice(table.odd_frequency)};
  }
  uint32_t done = 0;
  for (; length - done >= kRansLanes && end - next >= kRansGroupBytes; done += kRansLanes) {
    __m256i low, high;  // symbols in 16 bits: lanes 0-3, 8-11, 4-7, 12-15; 16 more
    if constexpr (kFew) {
      low = StepFew(few, &x0, &x1, &next);
      high = StepFew(few, &x2, &x3, &next);
    } else {
      const __m256i s0 = StepByLoads(table, &x0, &next);
      const __m256i s1 = StepByLoads(table, &x1, &next);
      const __m256i s2 = StepByLoads(table, &x2, &next);
      const __m256i s3 = StepByLoads(table, &x3, &next);
      low = _mm256_packus_epi32(s0, s1);
      high = _mm256_packus_epi32(s2, s3);
    }
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    __m256i* dst = reinterpret_cast<__m256i*>(out + done);
    if (shift != 0) {
      const __m256i old = _mm256_and_si256(_mm256_sll_epi16(_mm256_loadu_si256(dst), up), keep);
      bytes = _mm256_or_si256(bytes, old);
    }
    _mm256_storeu_si256(dst, bytes);
  }
  _mm256_store_si256(lanes, x0);
  _mm256_store_si256(lanes + 1, x1);
  _mm256_store_si256(lanes + 2, x2);
  _mm256_store_si256(lanes + 3, x3);
  *words = next;
  return done;
}

}  // namespace

SPARKV_AVX2 bool RansDecodeAvx2(const RansInput& in, uint8_t* out) {
  RansStates states;
  if (!LoadRansStates(in.states, in.length, &states)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const uint8_t id : in.table_of_run) {
    const RansTable& table = in.tables[id];
    if (table.one_symbol) {
      RansFillRun(table.symbol, in.length, in.shift, out);
      out += in.length;
      continue;
    }
    uint32_t done = table.few
                        ? DecodeGroups<true>(table, in.length, in.shift, &states, &next, end, out)
                        : DecodeGroups<false>(table, in.length, in.shift, &states, &next, end, out);
    while (done < in.length) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!RansDecodeGroup(table, n, in.shift, &states, &next, end, out + done)) return false;
      done += n;
    }
    out += in.length;
  }
  return RansAtEnd(states, next, end);
}

}  // namespace sparkv::kernels::internal
#endif

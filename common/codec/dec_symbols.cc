#include "common/codec/dec_symbols.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/codec/bit_io.h"
#include "common/codec/rans_common.h"
#include "kernels/rans_decode.h"

namespace sparkv {
namespace {

absl::Status Bad(std::string_view what, std::string_view why) {
  return absl::DataLossError(absl::StrCat(std::string(what), ": ", std::string(why)));
}

template <int kBits, bool kAppend>
bool UnpackRaw(const uint8_t* in, uint64_t n, uint8_t* out) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  const auto put = [](uint8_t* p, uint32_t s) {
    *p = static_cast<uint8_t>(kAppend ? uint32_t{*p} << kBits | s : s);
  };
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8, in += kBits, out += 8) {  // 8 symbols fill kBits bytes
    uint64_t word = 0;
    std::memcpy(&word, in, kBits);
    for (int j = 0; j < 8; ++j) put(out + j, static_cast<uint32_t>(word >> (j * kBits)) & kMask);
  }
  const int left = static_cast<int>(n - i);
  uint64_t word = 0;
  std::memcpy(&word, in, (left * kBits + 7) / 8);
  for (int j = 0; j < left; ++j) put(out + j, static_cast<uint32_t>(word >> (j * kBits)) & kMask);
  return left == 0 || (word >> (left * kBits)) == 0;
}

template <bool kAppend>
bool UnpackRaw(int bits, const uint8_t* in, uint64_t n, uint8_t* out) {
  switch (bits) {
    case 1:
      return UnpackRaw<1, kAppend>(in, n, out);
    case 2:
      return UnpackRaw<2, kAppend>(in, n, out);
    case 3:
      return UnpackRaw<3, kAppend>(in, n, out);
    case 4:
      return UnpackRaw<4, kAppend>(in, n, out);
    case 5:
      return UnpackRaw<5, kAppend>(in, n, out);
    case 6:
      return UnpackRaw<6, kAppend>(in, n, out);
    case 7:
      return UnpackRaw<7, kAppend>(in, n, out);
    default:
      return UnpackRaw<8, kAppend>(in, n, out);
  }
}

// Frequencies of one table; false unless they sum to kRansFrequencySum.
bool ReadTable(BitReader& bits, uint32_t alphabet, uint32_t* frequencies) {
  uint32_t sum = 0;
  for (uint32_t s = 0; s < alphabet;) {
    uint32_t width = 0;
    if (!bits.Read(4, &width)) return false;
    if (width == kRansZeroRun) {
      uint32_t more = 0;
      if (!bits.Read(kRansZeroRunBits, &more) || more >= alphabet - s) return false;
      std::fill_n(frequencies + s, more + 1, 0u);
      s += more + 1;
      continue;
    }
    uint32_t low = 0;
    if (width > kRansFrequencyBits + 1) return false;
    if (width > 1 && !bits.Read(static_cast<int>(width) - 1, &low)) return false;
    frequencies[s] = width == 0 ? 0 : (1u << (width - 1)) | low;
    sum += frequencies[s++];  // at most 256 * 8191
  }
  return sum == kRansFrequencySum;
}

absl::Status DecodeRans(ByteReader& reader, uint32_t runs, uint32_t length, int bits,
                        Combine combine, std::string_view what, uint8_t* out) {
  if (length == 0 || runs == 0) return Bad(what, "rANS for no symbols");
  ASSIGN_OR_RETURN(const uint8_t tables_minus_1, reader.Read<uint8_t>(what));
  const uint32_t tables = uint32_t{tables_minus_1} + 1;
  if (tables > kMaxRansTables) {
    return Bad(what, absl::StrCat(tables, " rANS tables; at most ", kMaxRansTables));
  }
  // The bit string has no length of its own: read it from a copy of the view, then skip it.
  ByteReader rest = reader;
  ASSIGN_OR_RETURN(const auto tail, rest.ReadBytes(reader.remaining(), what));
  BitReader bit_reader(tail);
  const int id_bits = RansTableIdBits(tables);
  std::vector<uint8_t> table_of_run(runs);
  for (uint8_t& id : table_of_run) {
    uint32_t value = 0;
    if (!bit_reader.Read(id_bits, &value)) return Bad(what, "cut short in the table numbers");
    if (value >= tables) return Bad(what, absl::StrCat("table ", value, " of ", tables));
    id = static_cast<uint8_t>(value);
  }
  const auto built = std::make_unique_for_overwrite<kernels::RansTable[]>(tables);
  uint32_t frequencies[256];
  const uint32_t alphabet = 1u << bits;
  for (uint32_t t = 0; t < tables; ++t) {
    if (!ReadTable(bit_reader, alphabet, frequencies)) {
      return Bad(what, absl::StrCat("rANS table ", t, " is cut short or does not sum to ",
                                    kRansFrequencySum));
    }
    built[t].Build({frequencies, alphabet});
  }
  if (!bit_reader.filling_is_zero()) return Bad(what, "filling bits are not 0");
  RETURN_IF_ERROR(reader.ReadBytes(bit_reader.bytes_read(), what).status());

  ASSIGN_OR_RETURN(const uint32_t words, reader.Read<uint32_t>(what));
  kernels::RansInput input;
  input.tables = {built.get(), tables};
  input.table_of_run = table_of_run;
  input.length = length;
  ASSIGN_OR_RETURN(input.states, reader.ReadBytes(uint64_t{4} * RansLanes(length), what));
  ASSIGN_OR_RETURN(input.words, reader.ReadBytes(uint64_t{2} * words, what));
  input.shift = combine == Combine::kAppend ? bits : 0;
  if (!kernels::RansDecode(input, out))
    return Bad(what, "the rANS stream does not end where it should");
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeSymbols(ByteReader& reader, uint32_t runs, uint32_t length, int bits,
                           Combine combine, std::string_view what, uint8_t* out) {
  const uint64_t n = uint64_t{runs} * length;
  ASSIGN_OR_RETURN(const uint8_t mode, reader.Read<uint8_t>(what));
  switch (static_cast<SymbolMode>(mode)) {
    case SymbolMode::kRaw: {
      ASSIGN_OR_RETURN(const auto raw, reader.ReadBytes((n * bits + 7) / 8, what));
      const bool ok = combine == Combine::kAppend ? UnpackRaw<true>(bits, raw.data(), n, out)
                                                  : UnpackRaw<false>(bits, raw.data(), n, out);
      if (!ok) return Bad(what, "filling bits are not 0");
      return absl::OkStatus();
    }
    case SymbolMode::kConstant: {
      ASSIGN_OR_RETURN(const uint8_t symbol, reader.Read<uint8_t>(what));
      if (symbol >> bits != 0)
        return Bad(what, absl::StrCat("symbol ", symbol, " of ", bits, " bits"));
      if (combine == Combine::kReplace) {
        std::fill_n(out, n, symbol);
      } else {
        for (uint64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(out[i] << bits | symbol);
      }
      return absl::OkStatus();
    }
    case SymbolMode::kRans:
      return DecodeRans(reader, runs, length, bits, combine, what, out);
  }
  return Bad(what, absl::StrCat("symbol block mode ", mode,
                                "; there are 0 (raw), 1 (constant), 2 (rANS)"));
}

}  // namespace sparkv

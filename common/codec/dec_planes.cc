#include "common/codec/dec_planes.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/codec/bit_io.h"
#include "common/codec/dec_block.h"
#include "common/codec/rans_common.h"
#include "common/codec/residual_common.h"
#include "kernels/rans_thirds.h"

namespace sparkv {
namespace {

absl::Status Bad(std::string_view what, std::string_view why) {
  return absl::DataLossError(absl::StrCat(std::string(what), ": ", std::string(why)));
}

// Tokens that are stored as they are.
absl::Status ReadExact(ByteReader& reader, const BlockShape& shape, BlockResidual* out) {
  ASSIGN_OR_RETURN(const uint16_t n, reader.Read<uint16_t>("exact tokens"));
  if (n > shape.tokens) {
    return Bad("exact tokens", absl::StrCat(n, "; the block has ", shape.tokens));
  }
  ASSIGN_OR_RETURN(const auto indices, reader.ReadBytes(uint64_t{2} * n, "exact tokens"));
  ASSIGN_OR_RETURN(
      const auto values,
      reader.ReadBytes(uint64_t{4} * n * shape.kv_heads * shape.head_dim, "exact tokens"));
  if (n == 0) return absl::OkStatus();
  out->exact_tokens.resize(n);
  std::memcpy(out->exact_tokens.data(), indices.data(), indices.size());
  for (size_t i = 0; i < n; ++i) {
    const uint32_t least = i == 0 ? 0 : uint32_t{out->exact_tokens[i - 1]} + 1;
    if (out->exact_tokens[i] < least || out->exact_tokens[i] >= shape.tokens) {
      return Bad("exact tokens", absl::StrCat("number ", i, " is token ", out->exact_tokens[i],
                                              "; allowed ", least, "..", shape.tokens - 1));
    }
  }
  out->exact.resize(values.size() / 2);
  std::memcpy(out->exact.data(), values.data(), values.size());
  for (const uint16_t bits : out->exact) {
    if ((bits & 0x7C00) == 0x7C00) return Bad("exact tokens", "a value is not finite");
  }
  return absl::OkStatus();
}

// Steps from number to number: each one is (number before + step) modulo `modulo`, and there are as
// many steps as numbers, so that no number can be written in two ways.
class NumberReader {
 public:
  explicit NumberReader(std::span<const uint8_t> bytes) : bits_(bytes) {}
  bool Next(uint32_t from, uint32_t modulo, uint32_t* number) {
    uint32_t gamma = 0;
    if (!bits_.ReadGamma(kMaxGammaBits, &gamma) || gamma > modulo) return false;
    const auto m = static_cast<int32_t>(modulo);
    *number =
        static_cast<uint32_t>((static_cast<int32_t>(from) + SymbolToValue(gamma - 1) + m) % m);
    return true;
  }
  const BitReader& bits() const { return bits_; }

 private:
  BitReader bits_;
};

struct Stream {
  std::span<const uint8_t> states, words;
};

absl::StatusOr<Stream> ReadStream(ByteReader& reader, uint32_t length, std::string_view what) {
  Stream s;
  ASSIGN_OR_RETURN(const uint32_t words, reader.Read<uint32_t>(what));
  ASSIGN_OR_RETURN(s.states, reader.ReadBytes(uint64_t{4} * kernels::RansLanes(length), what));
  ASSIGN_OR_RETURN(s.words, reader.ReadBytes(uint64_t{2} * words, what));
  return s;
}

// Reads numbers with `next` from the rest of the plane and moves the reader behind their bit
// string.
template <typename Next>
absl::Status ReadNumbers(ByteReader& reader, std::string_view what, Next next) {
  ByteReader rest = reader;
  ASSIGN_OR_RETURN(const auto tail, rest.ReadBytes(reader.remaining(), what));
  NumberReader numbers(tail);
  if (!next(numbers)) return Bad(what, "table numbers are cut short or out of range");
  if (!numbers.bits().filling_is_zero()) return Bad(what, "filling bits are not 0");
  return reader.ReadBytes(numbers.bits().bytes_read(), what).status();
}

absl::Status ReadFirstPlane(ByteReader& reader, std::span<const kernels::RansTable> tables,
                            std::span<const uint32_t> frequencies, const ProfileLayer& layer,
                            uint32_t runs, uint32_t length, int16_t* values) {
  constexpr std::string_view kWhat = "first plane";
  ASSIGN_OR_RETURN(const uint32_t escapes, reader.Read<uint32_t>(kWhat));
  ASSIGN_OR_RETURN(const auto escaped, reader.ReadBytes(uint64_t{6} * escapes, kWhat));
  std::vector<uint8_t> table_of_run(runs);
  RETURN_IF_ERROR(ReadNumbers(reader, kWhat, [&](NumberReader& numbers) {
    for (uint32_t r = 0; r < runs; ++r) {
      uint32_t number = 0;
      if (!numbers.Next(layer.table[r], kProfileTables, &number)) return false;
      table_of_run[r] = static_cast<uint8_t>(number);
    }
    return true;
  }));
  ASSIGN_OR_RETURN(const Stream stream, ReadStream(reader, length, kWhat));
  const size_t n = size_t{runs} * length;
  const auto symbols = std::make_unique_for_overwrite<uint8_t[]>(n);
  kernels::RansInput input;
  input.tables = tables;
  input.table_of_run = table_of_run;
  input.length = length;
  input.states = stream.states;
  input.words = stream.words;
  if (!kernels::RansDecode(input, symbols.get())) {
    return Bad(kWhat, "the rANS stream does not end where it should");
  }
  size_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    const int s = symbols[i];  // as SymbolToValue, without a branch
    values[i] = static_cast<int16_t>((s >> 1) ^ -(s & 1));
    found += s == kEscapeSymbol ? 1 : 0;
  }
  if (found != escapes) {
    return Bad(kWhat, absl::StrCat(found, " escapes in the stream, ", escapes, " values for them"));
  }
  size_t least = 0;
  for (uint32_t i = 0; i < escapes; ++i) {
    uint32_t index;
    int16_t value;
    std::memcpy(&index, escaped.data() + size_t{6} * i, 4);
    std::memcpy(&value, escaped.data() + size_t{6} * i + 4, 2);
    if (index < least || index >= n || symbols[index] != kEscapeSymbol) {
      return Bad(kWhat, absl::StrCat("escape ", i, " has index ", index));
    }
    if (value < -kMaxFirstMagnitude || value > kMaxFirstMagnitude) {
      return Bad(kWhat, absl::StrCat("escape ", i, " is ", value, "; allowed -", kMaxFirstMagnitude,
                                     "..", kMaxFirstMagnitude));
    }
    if (value >= -kMaxSymbolMagnitude && value <= kMaxSymbolMagnitude &&
        frequencies[size_t{table_of_run[index / length]} * kProfileSymbols + ValueToSymbol(value)] >
            0) {
      return Bad(kWhat, absl::StrCat("escape ", i, " is ", value, ", which has a symbol"));
    }
    values[index] = value;
    least = size_t{index} + 1;
  }
  return absl::OkStatus();
}

absl::Status ReadThirds(ByteReader& reader, size_t plane, uint32_t runs, uint32_t length,
                        int16_t* values) {
  const std::string what = absl::StrCat("refinement plane ", plane);
  std::vector<kernels::ThirdsModel> models(runs);
  RETURN_IF_ERROR(ReadNumbers(reader, what, [&](NumberReader& numbers) {
    uint32_t zero = 0, other = 0;
    for (kernels::ThirdsModel& model : models) {
      if (!numbers.Next(zero, kZeroModels, &zero) || !numbers.Next(other, kOtherModels, &other)) {
        return false;
      }
      model = {kZeroToOne[zero], kOther[other].inward, kOther[other].same};
    }
    return true;
  }));
  ASSIGN_OR_RETURN(const Stream stream, ReadStream(reader, length, what));
  if (!kernels::RansThirds({models, length, stream.states, stream.words}, values)) {
    return Bad(what, "the rANS stream does not end where it should");
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<kernels::RansTable[]> BuildProfileTables(const CodecProfile& profile) {
  auto tables = std::make_unique_for_overwrite<kernels::RansTable[]>(kProfileTables);
  for (uint32_t t = 0; t < kProfileTables; ++t) {
    tables[t].Build(profile.frequencies().subspan(size_t{t} * kProfileSymbols, kProfileSymbols));
  }
  return tables;
}

absl::StatusOr<BlockResidual> ReadResidual(const CodecInfo& info, const CodecProfile& profile,
                                           std::span<const kernels::RansTable> tables,
                                           uint32_t layer, const BlockShape& shape,
                                           std::span<const std::span<const uint8_t>> planes) {
  RETURN_IF_ERROR(CheckDecodeCall(info, shape, planes.size()));
  if (layer >= profile.shape().geometry.layers ||
      shape.kv_heads != profile.shape().geometry.kv_heads ||
      shape.head_dim != profile.shape().geometry.head_dim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codec ", std::string(info.name), ": a block of layer ", layer, " with ", shape.kv_heads,
        " KV heads of ", shape.head_dim, "; the profile is for layers 0..",
        profile.shape().geometry.layers - 1, " with ", profile.shape().geometry.kv_heads, " of ",
        profile.shape().geometry.head_dim));
  }
  const uint32_t runs = 2 * shape.kv_heads * shape.head_dim;
  BlockResidual out;
  out.planes = static_cast<uint32_t>(planes.size());
  // Layer 0 is computed, so its planes are tags alone.
  for (size_t p = 0; p < planes.size(); ++p) {
    ByteReader reader(planes[p]);
    RETURN_IF_ERROR(ReadPlaneTag(reader, info, static_cast<int>(p)));
    if (layer == 0) {
      // nothing
    } else if (p == 0) {
      RETURN_IF_ERROR(ReadExact(reader, shape, &out));
      out.symbols.resize(size_t{runs} * shape.tokens);
      RETURN_IF_ERROR(ReadFirstPlane(reader, tables, profile.frequencies(), profile.layer(layer),
                                     runs, shape.tokens, out.symbols.data()));
    } else {
      RETURN_IF_ERROR(ReadThirds(reader, p, runs, shape.tokens, out.symbols.data()));
    }
    RETURN_IF_ERROR(CheckPlaneEnd(reader, info, static_cast<int>(p)));
  }
  return out;
}

}  // namespace sparkv

#include "common/base/bytes.h"

#include "absl/strings/str_cat.h"

namespace sparkv {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats here are little-endian");

absl::StatusOr<std::span<const uint8_t>> ByteReader::ReadBytes(uint64_t n, std::string_view what) {
  if (n > remaining()) {
    return absl::DataLossError(absl::StrCat(absl::string_view(what.data(), what.size()), ": needs ",
                                            n, " bytes at offset ", offset_, ", ", remaining(),
                                            " left"));
  }
  std::span<const uint8_t> out = bytes_.subspan(offset_, n);
  offset_ += n;
  return out;
}

}  // namespace sparkv

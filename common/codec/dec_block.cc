#include "common/codec/dec_block.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sparkv {

absl::Status CheckDecodeCall(const CodecInfo& info, const BlockShape& shape, size_t planes) {
  RETURN_IF_ERROR(shape.Validate());
  const bool is_level =
      std::any_of(info.levels.begin(), info.levels.end(),
                  [&](const CodecLevel& l) { return static_cast<size_t>(l.planes) == planes; });
  if (is_level) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("codec ", std::string(info.name), ": ", planes,
                                                 " planes are no level; it has ", info.planes,
                                                 " planes"));
}

absl::Status ReadPlaneTag(ByteReader& reader, const CodecInfo& info, int plane) {
  ASSIGN_OR_RETURN(const uint8_t id, reader.Read<uint8_t>("plane tag"));
  ASSIGN_OR_RETURN(const uint8_t number, reader.Read<uint8_t>("plane tag"));
  if (id == info.id && number == plane) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("plane tag says codec ", id, " plane ", number,
                                          "; wanted codec ", info.id, " plane ", plane));
}

absl::Status CheckPlaneEnd(const ByteReader& reader, const CodecInfo& info, int plane) {
  if (reader.remaining() == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(std::string(info.name), " plane ", plane, ": ",
                                          reader.remaining(), " bytes behind its end"));
}

}  // namespace sparkv

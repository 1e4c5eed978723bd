#include "common/rpc/status_conv.h"

#include <string>
#include <string_view>

#include "common/base/utf8.h"

namespace sparkv {
namespace {

std::string Sanitize(std::string_view text) {
  std::string out = ToValidUtf8(text);
  if (out.size() <= kMaxStatusMessageBytes) return out;
  size_t end = kMaxStatusMessageBytes;
  while ((static_cast<uint8_t>(out[end]) & 0xC0) == 0x80) --end;  // not within a character
  out.resize(end);
  return out + "...";
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(static_cast<int>(status.code())),
          Sanitize(std::string_view(status.message().data(), status.message().size()))};
}

absl::StatusCode StatusCodeFromWire(int code) {
  if (code < 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::StatusCode::kUnknown;
  }
  return static_cast<absl::StatusCode>(code);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {StatusCodeFromWire(status.error_code()), status.error_message()};
}

}  // namespace sparkv

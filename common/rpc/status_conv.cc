#include "common/rpc/status_conv.h"

#include <algorithm>
#include <string>

namespace sparkv {
namespace {

// Bytes of the well-formed UTF-8 sequence at s[i], 0 if there is none.
size_t SequenceLength(const std::string& s, size_t i) {
  const auto byte = [&s](size_t at) { return static_cast<unsigned char>(s[at]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (n == 0 || i + n > s.size()) return 0;
  for (size_t k = 1; k < n; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return 0;
  }
  return n;
}

std::string Sanitize(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = SequenceLength(text, i);
    if (out.size() + std::max<size_t>(n, 1) > kMaxStatusMessageBytes) {
      out += "...";
      break;
    }
    if (n == 0) {
      out += '?';
      ++i;
    } else {
      out.append(text, i, n);
      i += n;
    }
  }
  return out;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(static_cast<int>(status.code())), Sanitize(std::string(status.message()))};
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

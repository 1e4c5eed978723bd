// Channel and server credentials from PEM files, and the channel options that both sides agree on.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sparkv {

// The client pings an idle connection every kKeepaliveInterval and gives it up after
// kKeepaliveTimeout; the server allows pings down to kMinPingInterval, so a client with the
// defaults is never told to calm down.
inline constexpr absl::Duration kKeepaliveInterval = absl::Seconds(20);
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(20);
inline constexpr absl::Duration kMinPingInterval = absl::Seconds(5);

// Frames carry at most 256 KiB; everything else fits too, but for manifests of very long contexts.
inline constexpr int kMaxMessageBytes = 128 << 20;  // a client takes: manifests of long contexts
inline constexpr int kMaxRequestBytes =
    24 << 20;  // a server takes: a document, or the ids of the longest context

struct ServerTlsFiles {
  std::string certificate;  // PEM chain, leaf first
  std::string key;          // PEM private key of the leaf
  bool empty() const { return certificate.empty() && key.empty(); }
};

// Both empty: insecure. InvalidArgument when only one is given, a file holds no certificate or key,
// or the two do not belong together; NotFound or Unavailable naming the file when it can't be read.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTlsFiles& files);

struct ClientTls {
  bool enabled = false;
  std::string ca_file;      // PEM roots; empty: the system's
  std::string server_name;  // expected name in the certificate; empty: the target's host
};

// Insecure unless enabled. Errors as above.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const ClientTls& tls);

// Keepalive, message limits and, with TLS, the expected name. Never blocks; the connection is made
// on first use. InvalidArgument for an empty target.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& target,
                                                           const ClientTls& tls);

// The server's side of the same agreement.
void ApplyServerOptions(grpc::ServerBuilder* builder);

}  // namespace sparkv

#include "common/rpc/tls.h"

#include <grpcpp/create_channel.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/listen_address.h"

namespace sparkv {
namespace {

constexpr uint64_t kMaxPemBytes = 16 << 20;  // the system's root bundle is below 1 MiB

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* what) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxPemBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("TLS ", what, ": ", text.status().message()));
  }
  return text;
}

// No interactive question for the passphrase of an encrypted key.
int NoPassphrase(char*, int, int, void*) { return 0; }

absl::StatusOr<std::unique_ptr<X509, Free>> ParseCertificate(const std::string& pem,
                                                             const std::string& path) {
  const std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::unique_ptr<X509, Free> certificate(
      PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS certificate: ", path, " holds no PEM certificate"));
  }
  return certificate;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTlsFiles& files) {
  if (files.empty()) return grpc::InsecureServerCredentials();
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("TLS needs a certificate and a key; only the ",
                                                   files.key.empty() ? "certificate" : "key",
                                                   " is given"));
  }
  ASSIGN_OR_RETURN(std::string certificate_pem, ReadPem(files.certificate, "certificate"));
  ASSIGN_OR_RETURN(std::string key_pem, ReadPem(files.key, "key"));
  ASSIGN_OR_RETURN(const auto certificate, ParseCertificate(certificate_pem, files.certificate));
  const std::unique_ptr<BIO, Free> bio(
      BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())));
  const std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS key: ", files.key, " holds no PEM private key without a passphrase"));
  }
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return absl::InvalidArgumentError(absl::StrCat("TLS: the key in ", files.key,
                                                   " does not belong to the certificate in ",
                                                   files.certificate));
  }
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({std::move(key_pem), std::move(certificate_pem)});
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const ClientTls& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  if (!tls.ca_file.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(tls.ca_file, "roots"));
    RETURN_IF_ERROR(ParseCertificate(options.pem_root_certs, tls.ca_file).status());
  }
  return grpc::SslCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& target,
                                                           const ClientTls& tls) {
  RETURN_IF_ERROR(CheckTargetAddress(target));
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   MakeChannelCredentials(tls));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveInterval)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveTimeout)));
  // Streams live for minutes without data from the client; without calls no ping is sent.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // An edge must notice soon that its server is back.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  if (tls.enabled && !tls.server_name.empty()) arguments.SetSslTargetNameOverride(tls.server_name);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

void ApplyServerOptions(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(kMinPingInterval)));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // The server's own pings end the streams of clients that vanished without a word.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveInterval)));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveTimeout)));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers on one port is a mistake
}

}  // namespace sparkv

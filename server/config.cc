#include "server/config.h"

#include <algorithm>
#include <thread>

#include "common/base/status.h"
#include "common/rpc/listen_address.h"
#include "server/codecs.h"

namespace sparkv {

std::vector<Setting> ServerSettings() {
  return {
      {.key = "model", .help = "GGUF file of the model.", .required = true},
      {.key = "data_dir",
       .default_value = "sparkv-data",
       .help = "Folder of the store; created when absent.",
       .required = true},
      {.key = "listen",
       .default_value = "127.0.0.1:7070",
       .help = "Address and port to listen on; port 0: any free one.",
       .required = true},
      {.key = "port_file", .help = "File to write the port to when ready; empty: none."},
      {.key = "disk_budget",
       .type = SettingType::kBytes,
       .default_value = "10GiB",
       .help = "Bytes of stored columns, beyond which the least recently used contexts are "
               "evicted; 0: no limit.",
       .min = 0},
      {.key = "kv_budget",
       .type = SettingType::kBytes,
       .default_value = "8GiB",
       .help = "Memory for the K/V cache of the context that is being precomputed.",
       .min = 1 << 20},
      {.key = "codec",
       .help = "Codec of contexts that name none; empty: aatc-pred where a profile is for it, else "
               "generic.",
       .choices = AllCodecNames()},
      {.key = "profile",
       .type = SettingType::kStrings,
       .help =
           "File of a model profile, which the codecs aatc and aatc-pred need (sparkv calibrate "
           "makes it); may be given once for each of them."},
      {.key = "threads",
       .type = SettingType::kInt,
       .default_value = "0",
       .help = "Threads of the model; 0: the machine's cores.",
       .min = 0,
       .max = 1024},
      {.key = "encode_threads",
       .type = SettingType::kInt,
       .default_value = "0",
       .help = "Threads that encode columns beside the prefill; 0: half of the cores.",
       .min = 0,
       .max = 1024},
      {.key = "max_fetch_streams",
       .type = SettingType::kInt,
       .default_value = "64",
       .help = "Fetch streams at once; more are refused.",
       .min = 1,
       .max = 10000},
      {.key = "max_precompute_calls",
       .type = SettingType::kInt,
       .default_value = "64",
       .help = "Precompute calls at once, waiting ones included; more are refused.",
       .min = 1,
       .max = 1000},
      {.key = "io_threads",
       .type = SettingType::kInt,
       .default_value = "2",
       .help = "Threads that read items for streams.",
       .min = 1,
       .max = 256},
      {.key = "fetch_stall_limit",
       .type = SettingType::kDuration,
       .default_value = "10m",
       .help = "A fetch stream on which nothing moves for so long is ended.",
       .min = 1,
       .max = 86400},
      {.key = "shutdown_grace",
       .type = SettingType::kDuration,
       .default_value = "5s",
       .help = "Time for running streams to end at a stop.",
       .min = 0,
       .max = 600},
      {.key = "log_level",
       .default_value = "info",
       .help = "What is logged to stderr.",
       .choices = {"trace", "debug", "info", "warn", "error", "off"}},
      {.key = "insecure",
       .type = SettingType::kBool,
       .default_value = "false",
       .help = "Serve without TLS: the link is neither encrypted nor authenticated."},
      {.key = "tls.cert",
       .help = "PEM file with the server's certificate chain; needed unless insecure."},
      {.key = "tls.key", .help = "PEM file with the certificate's private key."},
  };
}

absl::StatusOr<ServerConfig> MakeServerConfig(const Settings& settings) {
  ServerConfig config;
  config.model = settings.GetString("model");
  config.port_file = settings.GetString("port_file");
  config.log_level = settings.GetString("log_level");
  config.threads = static_cast<int>(settings.GetInt("threads"));
  config.grace = settings.GetDuration("shutdown_grace");
  KvServerOptions& server = config.server;
  server.listen = settings.GetString("listen");
  RETURN_IF_ERROR(CheckListenAddress(server.listen));
  server.tls = {settings.GetString("tls.cert"), settings.GetString("tls.key")};
  if (server.tls.certificate.empty() != server.tls.key.empty()) {
    return absl::InvalidArgumentError("tls.cert and tls.key must be given together");
  }
  if (settings.GetBool("insecure") != server.tls.certificate.empty()) {
    return absl::InvalidArgumentError(
        server.tls.certificate.empty()
            ? "no certificate: set tls.cert and tls.key, or insecure to serve without TLS"
            : "insecure and tls.cert exclude each other");
  }
  server.store.path = settings.GetString("data_dir");
  server.store.budget_bytes = settings.GetBytes("disk_budget");
  server.precompute.kv_budget_bytes = settings.GetBytes("kv_budget");
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int encode = static_cast<int>(settings.GetInt("encode_threads"));
  server.precompute.encode_threads = encode != 0 ? encode : std::max(1, cores / 2);
  server.default_codec = settings.GetString("codec");
  server.profiles = settings.GetStrings("profile");
  server.service.max_fetch_streams = static_cast<int>(settings.GetInt("max_fetch_streams"));
  server.service.max_precompute_calls = static_cast<int>(settings.GetInt("max_precompute_calls"));
  server.service.io_threads = static_cast<int>(settings.GetInt("io_threads"));
  server.service.fetch_stall_limit = settings.GetDuration("fetch_stall_limit");
  return config;
}

}  // namespace sparkv

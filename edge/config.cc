#include "edge/config.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/codec/codec.h"
#include "common/codec/dec_aatc.h"
#include "common/rpc/listen_address.h"

namespace sparkv {
namespace {

constexpr uint64_t kMaxTraceBytes = uint64_t{16} << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status ReadLink(const Settings& settings, EdgeConfig* config) {
  const double mbit = settings.GetDouble("link.mbit");
  const std::string& trace = settings.GetString("link.trace");
  config->link.rtt_ms = settings.GetDouble("link.rtt_ms");
  config->link.jitter_ms = settings.GetDouble("link.jitter_ms");
  if (mbit > 0 && !trace.empty()) {
    return absl::InvalidArgumentError("link.mbit and link.trace: only one of them may be set");
  }
  config->shaped =
      mbit > 0 || !trace.empty() || config->link.rtt_ms > 0 || config->link.jitter_ms > 0;
  if (!config->shaped) return absl::OkStatus();
  if (config->server.empty()) {
    return absl::InvalidArgumentError("link: there is no link to shape without a server");
  }
  std::string rate = "unlimited";
  if (mbit > 0) {
    ASSIGN_OR_RETURN(config->link.rate, RateTrace::Constant(mbit));
    rate = absl::StrCat(mbit, " Mbit/s");
  } else if (!trace.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(trace, kMaxTraceBytes));
    ASSIGN_OR_RETURN(config->link.rate, RateTrace::Parse(text, trace));
    rate = absl::StrCat("trace ", trace);
  }
  if (mbit > 0 || !trace.empty())
    config->session.link.bytes_per_s = config->link.rate.mean_mbit() * 125e3;
  config->session.link.rtt_s = config->link.rtt_ms / 1e3;
  config->link_text = absl::StrCat(rate, ", RTT ", config->link.rtt_ms, " ms, jitter ",
                                   config->link.jitter_ms, " ms");
  return absl::OkStatus();
}

}  // namespace

std::string DefaultDataDir() {
  if (const std::string state = Environment("STATE_DIRECTORY"); !state.empty()) return state;
  if (const std::string state = Environment("XDG_STATE_HOME"); !state.empty())
    return state + "/sparkv/edge";
  if (const std::string home = Environment("HOME"); !home.empty())
    return home + "/.local/state/sparkv/edge";
  return "";
}

std::vector<Setting> EdgeSettings() {
  std::vector<std::string> codecs = CodecNames();
  for (const CodecInfo* info : {&AatcInfo(), &AatcPredInfo()}) codecs.emplace_back(info->name);
  return {
      {.key = "listen",
       .default_value = "127.0.0.1:7071",
       .help =
           "Address for apps and the sparkv tool: host:port (port 0: any free one) or unix:PATH.",
       .required = true},
      {.key = "port_file", .help = "Write the address here once the daemon listens; empty: don't."},
      {.key = "model", .help = "The GGUF file of the model.", .required = true},
      {.key = "data_dir",
       .help = "Folder of the contexts and model profiles known here; empty: $STATE_DIRECTORY, "
               "$XDG_STATE_HOME/sparkv/edge or "
               "~/.local/state/sparkv/edge."},
      {.key = "server",
       .help = "The server's host:port; empty: none, everything is computed here."},
      {.key = "insecure",
       .type = SettingType::kBool,
       .default_value = "false",
       .help = "Talk to the server without TLS."},
      {.key = "tls.ca",
       .help = "PEM file of the roots that the server's certificate must lead to; empty: the "
               "system's."},
      {.key = "tls.name",
       .help = "Name expected in the server's certificate; empty: the host in `server`."},
      {.key = "kv_budget_bytes",
       .type = SettingType::kBytes,
       .default_value = "1GiB",
       .help = "Memory for the KV of loaded contexts, chats and the running request.",
       .min = 1 << 20},
      {.key = "kv_dtype",
       .default_value = "f16",
       .help = "How K and V are kept in memory.",
       .choices = {"f16", "f32"}},
      {.key = "threads",
       .type = SettingType::kInt,
       .default_value = "0",
       .help = "CPU threads for the model; 0: all cores.",
       .min = 0,
       .max = 1024},
      {.key = "attention",
       .default_value = "dense",
       .help = "Of context tokens that are computed here: dense, or sparge[:TAU], where blocks of "
               "queries visit the key blocks that hold TAU of their predicted attention, and what "
               "is computed is no longer exact. Questions and answers are always dense."},
      {.key = "max_queue",
       .type = SettingType::kInt,
       .default_value = "16",
       .help = "Requests that may wait behind the running one.",
       .min = 0,
       .max = 10000},
      {.key = "policy",
       .default_value = "sparkv",
       .help = "How contexts are loaded unless a request says otherwise.",
       .choices = AllPolicyNames()},
      {.key = "level",
       .type = SettingType::kInt,
       .default_value = "0",
       .help = "Codec level of streamed blocks unless a request says otherwise; 0: the codec's "
               "default.",
       .min = 0,
       .max = 64},
      {.key = "codec",
       .help = "Codec of contexts that are added without one; empty: the server's default. Until "
               "the model profile that aatc and aatc-pred need has come from the server, contexts "
               "are stored as generic.",
       .choices = codecs},
      {.key = "profile_wait",
       .type = SettingType::kDuration,
       .default_value = "0",
       .help = "How long a request waits for a model profile that is not here yet; then it goes on "
               "without, and the fetch goes on beside it.",
       .min = 0,
       .max = 3600},
      {.key = "slo_ms",
       .type = SettingType::kInt,
       .default_value = "0",
       .help = "With the policy stream, the time in which the first token should come unless a "
               "request says otherwise: the codec level is chosen by it. 0: none.",
       .min = 0,
       .max = 3600000},
      {.key = "link.mbit",
       .type = SettingType::kDouble,
       .default_value = "0",
       .help = "Shape the link to the server to so many Mbit/s; 0: don't limit the rate.",
       .min = 0,
       .max = 1e6},
      {.key = "link.rtt_ms",
       .type = SettingType::kDouble,
       .default_value = "0",
       .help = "Round-trip time to add to the link, milliseconds.",
       .min = 0,
       .max = 60000},
      {.key = "link.jitter_ms",
       .type = SettingType::kDouble,
       .default_value = "0",
       .help = "Random delay of up to so many milliseconds on top.",
       .min = 0,
       .max = 60000},
      {.key = "link.trace",
       .help = "File of Mbit/s for each interval instead of link.mbit; empty: none."},
      {.key = "log_level",
       .default_value = "info",
       .help = "Least severe messages written to stderr.",
       .choices = {"trace", "debug", "info", "warn", "error", "off"}},
  };
}

absl::StatusOr<EdgeConfig> MakeEdgeConfig(const Settings& settings) {
  EdgeConfig config;
  config.listen = settings.GetString("listen");
  if (!config.listen.empty()) RETURN_IF_ERROR(CheckListenAddress(config.listen));
  config.port_file = settings.GetString("port_file");
  config.model = settings.GetString("model");
  config.data_dir = settings.GetString("data_dir");
  if (config.data_dir.empty()) config.data_dir = DefaultDataDir();
  if (config.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "data_dir: not set, and neither are STATE_DIRECTORY, XDG_STATE_HOME and HOME");
  }
  config.server = settings.GetString("server");
  if (!config.server.empty()) {
    if (const absl::Status server = CheckTargetAddress(config.server); !server.ok())
      return absl::InvalidArgumentError(absl::StrCat("server: ", server.message()));
  }
  config.tls.enabled = !settings.GetBool("insecure");
  config.tls.ca_file = settings.GetString("tls.ca");
  config.tls.server_name = settings.GetString("tls.name");
  if (!config.tls.enabled && (!config.tls.ca_file.empty() || !config.tls.server_name.empty())) {
    return absl::InvalidArgumentError("insecure: it excludes tls.ca and tls.name");
  }
  SessionOptions& session = config.session;
  session.kv_budget_bytes = settings.GetBytes("kv_budget_bytes");
  session.kv_dtype = settings.GetString("kv_dtype") == "f32" ? KvDtype::kF32 : KvDtype::kF16;
  session.decoder.threads = static_cast<int>(settings.GetInt("threads"));
  ASSIGN_OR_RETURN(session.decoder.attention, ParseAttention(settings.GetString("attention")));
  session.max_queue = static_cast<uint32_t>(settings.GetInt("max_queue"));
  session.level = static_cast<uint32_t>(settings.GetInt("level"));
  session.slo_ms = static_cast<uint32_t>(settings.GetInt("slo_ms"));
  session.policy = PolicyOfName(settings.GetString("policy")).value_or(session.policy);
  config.contexts.codec = settings.GetString("codec");
  config.contexts.profile_wait = settings.GetDuration("profile_wait");
  config.log_level = settings.GetString("log_level");
  RETURN_IF_ERROR(ReadLink(settings, &config));
  return config;
}

}  // namespace sparkv

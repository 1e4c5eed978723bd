// The server's settings: one table for flags, SPARKV_SERVER_* variables and the TOML file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/settings.h"
#include "server/kv_server.h"

namespace sparkv {

inline constexpr const char* kServerEnvPrefix = "SPARKV_SERVER_";

std::vector<Setting> ServerSettings();

struct ServerConfig {
  std::string model;      // GGUF
  std::string port_file;  // empty: none
  std::string log_level;
  int threads = 0;  // of the model; 0: the machine's cores
  absl::Duration grace;
  KvServerOptions server;
};

// From loaded settings. InvalidArgument where two settings do not fit each other.
absl::StatusOr<ServerConfig> MakeServerConfig(const Settings& settings);

}  // namespace sparkv

// The edge daemon's settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/settings.h"
#include "common/rpc/tls.h"
#include "edge/net/shaped_link.h"
#include "edge/session.h"

namespace sparkv {

struct EdgeConfig {
  std::string listen;     // host:port (port 0: any free one) or unix:PATH
  std::string port_file;  // empty: none
  std::string model;
  std::string data_dir;
  std::string server;  // host:port; empty: none
  ClientTls tls;       // of the connection to the server
  ContextsOptions contexts;
  SessionOptions session;
  bool shaped = false;
  LinkOptions link;       // when shaped
  std::string link_text;  // for people; empty: none
  std::string log_level;
};

inline constexpr const char* kEdgeEnvPrefix = "SPARKV_EDGE_";
std::vector<Setting> EdgeSettings();
// Checks what spans several settings. InvalidArgument names them; NotFound for a trace file.
absl::StatusOr<EdgeConfig> MakeEdgeConfig(const Settings& settings);

// $STATE_DIRECTORY (systemd), $XDG_STATE_HOME/sparkv/edge or ~/.local/state/sparkv/edge; empty when
// none is set.
std::string DefaultDataDir();

}  // namespace sparkv

// The daemon's messages as JSON with stable names: those of edge.proto.
#pragma once

#include <nlohmann/json.hpp>

#include "sparkv/v1/edge.pb.h"

namespace sparkv::cli {

using Json = nlohmann::ordered_json;

Json ToJson(const v1::EdgeContext& context);
Json ToJson(const v1::StatusResponse& status);
Json ToJson(const v1::Usage& usage);
Json ToJson(const v1::Ttft& ttft);
// usage, ttft, degraded and, when asked for, timeline.
Json ToJson(const v1::GenerateResponse::Result& result, bool timeline);
Json ToJson(const v1::GenerateResponse::Token& token);

// One line or indented, whatever bytes are inside.
std::string Dump(const Json& json);

}  // namespace sparkv::cli

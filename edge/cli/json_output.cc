#include "edge/cli/json_output.h"

#include <string>

namespace sparkv::cli {
namespace {

const char* KindName(v1::BlockEvent::Kind kind) {
  switch (kind) {
    case v1::BlockEvent::STREAMED:
      return "streamed";
    case v1::BlockEvent::COMPUTED:
      return "computed";
    case v1::BlockEvent::QUERY:
      return "query";
    default:
      return "unknown";
  }
}

template <typename List>
Json Array(const List& list) {
  Json out = Json::array();
  for (const auto& item : list) out.push_back(item);
  return out;
}

}  // namespace

Json ToJson(const v1::EdgeContext& context) {
  return {{"id", context.id()},
          {"name", context.name()},
          {"tokens", context.tokens()},
          {"codec", context.codec()},
          {"raw", context.raw()},
          {"on_server", context.on_server()},
          {"loaded", context.loaded()},
          {"stored_bytes", context.stored_bytes()},
          {"created_unix_ms", context.created_unix_ms()},
          {"level_bytes", Array(context.level_bytes())}};
}

Json ToJson(const v1::StatusResponse& status) {
  Json profiles = Json::array();
  for (const v1::ProfileState& one : status.profiles()) {
    profiles.push_back({{"digest", one.digest()},
                        {"codec", one.codec()},
                        {"bytes", one.bytes()},
                        {"bytes_done", one.bytes_done()},
                        {"state", one.state()},
                        {"fetch_ms", one.fetch_ms()}});
  }
  return {{"version", status.version()},
          {"model", status.model()},
          {"model_fingerprint", status.model_fingerprint()},
          {"context_length", status.context_length()},
          {"server", status.server()},
          {"server_state", status.server_state()},
          {"kv_budget_bytes", status.kv_budget_bytes()},
          {"kv_used_bytes", status.kv_used_bytes()},
          {"contexts_loaded", status.contexts_loaded()},
          {"queue_length", status.queue_length()},
          {"max_queue", status.max_queue()},
          {"link", status.link()},
          {"default_policy", status.default_policy()},
          {"cpu_features", status.cpu_features()},
          {"profiles", std::move(profiles)}};
}

Json ToJson(const v1::Usage& usage) {
  return {{"context_tokens", usage.context_tokens()},
          {"session_tokens", usage.session_tokens()},
          {"prompt_tokens", usage.prompt_tokens()},
          {"completion_tokens", usage.completion_tokens()},
          {"bytes_fetched", usage.bytes_fetched()},
          {"profile_bytes", usage.profile_bytes()},
          {"blocks_streamed", usage.blocks_streamed()},
          {"blocks_computed", usage.blocks_computed()},
          {"blocks_resident", usage.blocks_resident()},
          {"policy", usage.policy()},
          {"level", usage.level()},
          {"seed", usage.seed()},
          {"decode_tokens_per_s", usage.decode_tokens_per_s()},
          {"finish_reason", usage.finish_reason()}};
}

Json ToJson(const v1::Ttft& ttft) {
  return {{"total_ms", ttft.total_ms()},           {"queue_ms", ttft.queue_ms()},
          {"lookup_ms", ttft.lookup_ms()},         {"stream_ms", ttft.stream_ms()},
          {"decode_ms", ttft.decode_ms()},         {"compute_ms", ttft.compute_ms()},
          {"stall_ms", ttft.stall_ms()},           {"query_prefill_ms", ttft.query_prefill_ms()},
          {"first_step_ms", ttft.first_step_ms()}, {"profile_ms", ttft.profile_ms()},
          {"final_ms", ttft.final_ms()}};
}

Json ToJson(const v1::GenerateResponse::Result& result, bool timeline) {
  Json out = {{"usage", ToJson(result.usage())},
              {"ttft", ToJson(result.ttft())},
              {"degraded", Array(result.degraded())}};
  if (timeline) {
    Json events = Json::array();
    for (const v1::BlockEvent& event : result.timeline()) {
      events.push_back({{"kind", KindName(event.kind())},
                        {"column", event.column()},
                        {"layer", event.layer()},
                        {"begin_ms", event.begin_ms()},
                        {"end_ms", event.end_ms()}});
    }
    out["timeline"] = std::move(events);
  }
  return out;
}

Json ToJson(const v1::GenerateResponse::Token& token) {
  Json out = {{"id", token.id()}, {"text", token.text()}};
  if (token.top_size() > 0) {
    out["logprob"] = token.logprob();
    Json top = Json::array();
    for (const v1::TokenLogprob& one : token.top())
      top.push_back({{"id", one.id()}, {"logprob", one.logprob()}});
    out["top"] = std::move(top);
  }
  return out;
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sparkv::cli

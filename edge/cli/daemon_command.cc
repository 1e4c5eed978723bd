// `sparkv load`, `status` and `gguf`.
#include <cstdio>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/gguf/gguf_summary.h"
#include "common/rpc/message_utf8.h"
#include "edge/cli/client.h"
#include "edge/cli/context_command.h"
#include "edge/cli/exit_code.h"
#include "edge/cli/json_output.h"
#include "edge/cli/progress.h"
#include "edge/cli/timeline.h"
#include "edge/policy_name.h"

namespace sparkv::cli {
namespace {

struct LoadOptions {
  ClientOptions client;
  std::string context;
  std::string policy;
  uint32_t level = 0;
  bool drop_loaded = false;
  bool timeline = false;
};

absl::Status Load(const LoadOptions& o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o.client));
  grpc::ClientContext context;
  const InterruptWatch::Scope scope(client->watch(), &context);
  v1::LoadRequest request;
  request.set_context(o.context);
  RETURN_IF_ERROR(CheckUtf8(request));
  request.set_level(o.level);
  request.set_drop_loaded(o.drop_loaded);
  request.set_policy(PolicyOfName(o.policy).value_or(v1::POLICY_UNSPECIFIED));
  auto reader = client->stub()->Load(&context, request);
  v1::LoadResponse response;
  v1::GenerateResponse::Result result;
  {
    Progress progress("loading", "blocks", o.client.json);
    while (reader->Read(&response)) {
      if (response.has_loading())
        progress.Update(response.loading().blocks_done(), response.loading().blocks_total());
      if (response.has_result()) result = response.result();
    }
  }
  RETURN_IF_ERROR(client->Finish(reader->Finish()));
  if (o.client.json) {
    std::printf("%s\n", Dump(ToJson(result, o.timeline)).c_str());
    return absl::OkStatus();
  }
  const v1::Usage& usage = result.usage();
  std::printf(
      "loaded in %.0f ms: %u tokens, policy %s, %s fetched; blocks: %u streamed, %u computed, %u "
      "resident\n",
      result.ttft().total_ms(), usage.context_tokens(), usage.policy().c_str(),
      HumanBytes(usage.bytes_fetched()).c_str(), usage.blocks_streamed(), usage.blocks_computed(),
      usage.blocks_resident());
  for (const std::string& reason : result.degraded())
    std::fprintf(stderr, "degraded: %s\n", reason.c_str());
  if (o.timeline) std::fputs(DrawTimeline(result, 30, TerminalWidth() - 8).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Status(const ClientOptions& o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o));
  grpc::ClientContext context;
  Client::SetDeadline(&context);
  const InterruptWatch::Scope scope(client->watch(), &context);
  v1::StatusResponse s;
  RETURN_IF_ERROR(client->Finish(client->stub()->Status(&context, {}, &s)));
  if (o.json) {
    std::printf("%s\n", Dump(ToJson(s)).c_str());
    return absl::OkStatus();
  }
  std::printf(
      "version      %s\nmodel        %s\nfingerprint  %s\ncontext      %u tokens\nserver       %s "
      "(%s)\nlink         %s\n"
      "policy       %s\nKV memory    %s of %s, %u contexts loaded\nqueue        %u, at most %u "
      "wait\ncpu          %s\n",
      s.version().c_str(), s.model().c_str(), s.model_fingerprint().c_str(), s.context_length(),
      s.server().empty() ? "none" : s.server().c_str(), s.server_state().c_str(),
      s.link().empty() ? "as it is" : s.link().c_str(), s.default_policy().c_str(),
      HumanBytes(s.kv_used_bytes()).c_str(), HumanBytes(s.kv_budget_bytes()).c_str(),
      s.contexts_loaded(), s.queue_length(), s.max_queue(), s.cpu_features().c_str());
  for (const v1::ProfileState& p : s.profiles()) {
    std::printf("profile      %s %s, %s of %s, %s\n", p.digest().substr(0, 12).c_str(),
                p.codec().empty() ? "?" : p.codec().c_str(), HumanBytes(p.bytes_done()).c_str(),
                p.bytes() == 0 ? "?" : HumanBytes(p.bytes()).c_str(), p.state().c_str());
  }
  return absl::OkStatus();
}

absl::Status Gguf(const std::string& file, bool json) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufReader> reader, GgufReader::Open(file));
  if (!json) {
    std::fputs(GgufSummary(*reader).c_str(), stdout);
    return absl::OkStatus();
  }
  Json tensors = Json::array();
  for (const GgufTensor& tensor : reader->tensors()) {
    Json dims = Json::array();
    for (uint32_t i = 0; i < tensor.n_dims; ++i) dims.push_back(tensor.dims[i]);
    tensors.push_back({{"name", std::string(tensor.name)},
                       {"type", static_cast<int>(tensor.type)},
                       {"dims", std::move(dims)},
                       {"bytes", tensor.data.size()}});
  }
  Json keys = Json::array();
  for (const auto& [key, value] : reader->metadata()) keys.push_back(std::string(key));
  std::printf("%s\n", Dump({{"version", reader->version()},
                            {"keys", std::move(keys)},
                            {"tensors", std::move(tensors)}})
                          .c_str());
  return absl::OkStatus();
}

}  // namespace

void AddDaemonCommands(CLI::App* app, int* exit_code) {
  auto load_options = std::make_shared<LoadOptions>();
  CLI::App* load = app->add_subcommand(
      "load", "Load a context into the daemon's memory without asking anything");
  load->add_option("context", load_options->context, "id, unique prefix of it, or name")
      ->required();
  load->add_option("--policy", load_options->policy, PolicyNames() + "; default: the daemon's")
      ->check(CLI::IsMember(AllPolicyNames()));
  load->add_option("--level", load_options->level,
                   "codec level of streamed blocks; 0: the daemon's default");
  load->add_flag("--drop-loaded", load_options->drop_loaded,
                 "forget the context's loaded KV first");
  load->add_flag("--timeline", load_options->timeline,
                 "draw which layer and column was streamed or computed when");
  AddClientOptions(load, &load_options->client);
  load->callback([=] { *exit_code = Report(Load(*load_options), load_options->client.json); });

  auto status_options = std::make_shared<ClientOptions>();
  CLI::App* status = app->add_subcommand("status", "Show the daemon's state");
  AddClientOptions(status, status_options.get());
  status->callback([=] { *exit_code = Report(Status(*status_options), status_options->json); });

  auto file = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* gguf = app->add_subcommand("gguf", "List what a GGUF file holds");
  gguf->add_option("file", *file, "the file")->required();
  gguf->add_flag("--json", *json, "print JSON, errors included");
  gguf->callback([=] { *exit_code = Report(Gguf(*file, *json), *json); });
}

}  // namespace sparkv::cli

#include "edge/cli/context_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/message_utf8.h"
#include "edge/cli/client.h"
#include "edge/cli/exit_code.h"
#include "edge/cli/input.h"
#include "edge/cli/json_output.h"
#include "edge/cli/progress.h"

namespace sparkv::cli {
namespace {

struct AddOptions {
  ClientOptions client;
  std::string file;
  std::string name;
  std::string system;
  std::string codec;
  bool raw = false;
};

struct OneContext {
  ClientOptions client;
  std::string context;
};

void PrintDegraded(const google::protobuf::RepeatedPtrField<std::string>& reasons) {
  for (const std::string& reason : reasons) std::fprintf(stderr, "degraded: %s\n", reason.c_str());
}

Json Reasons(const google::protobuf::RepeatedPtrField<std::string>& reasons) {
  Json out = Json::array();
  for (const std::string& reason : reasons) out.push_back(reason);
  return out;
}

void PrintContext(const v1::EdgeContext& c) {
  std::printf(
      "name     %s\nid       %s\ntokens   %u%s\ncodec    %s\nserver   %s\nloaded   %s\ncreated  "
      "%s\n",
      c.name().c_str(), c.id().c_str(), c.tokens(), c.raw() ? " (raw)" : "", c.codec().c_str(),
      c.on_server() ? absl::StrCat("precomputed, ", HumanBytes(c.stored_bytes())).c_str()
                    : "not there",
      c.loaded() ? "yes" : "no",
      absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(c.created_unix_ms()),
                       absl::LocalTimeZone())
          .c_str());
  for (int i = 0; i < c.level_bytes_size(); ++i) {
    std::printf("planes   first %d: %s\n", i + 1, HumanBytes(c.level_bytes(i)).c_str());
  }
}

absl::Status Add(const AddOptions& o) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(o.file));
  const std::string name = !o.name.empty() ? o.name
                           : o.file == "-" ? "stdin"
                                           : std::filesystem::path(o.file).filename().string();
  v1::AddContextRequest request;
  request.set_name(name);
  request.set_text(text);
  request.set_raw(o.raw);
  request.set_system(o.system);
  request.set_codec(o.codec);
  RETURN_IF_ERROR(CheckUtf8(request));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o.client));
  grpc::ClientContext context;
  const InterruptWatch::Scope scope(client->watch(), &context);
  auto reader = client->stub()->AddContext(&context, request);
  v1::AddContextResponse response;
  v1::AddContextResponse last;
  {
    Progress progress("precompute", "tokens", o.client.json);
    while (reader->Read(&response)) {
      if (response.has_done()) {
        last = response;
      } else {
        progress.Update(response.tokens_done(), response.tokens_total(), response.seconds_left());
      }
    }
  }
  RETURN_IF_ERROR(client->Finish(reader->Finish()));
  if (o.client.json) {
    Json out = ToJson(last.done());
    out["degraded"] = Reasons(last.degraded());
    std::printf("%s\n", Dump(out).c_str());
    return absl::OkStatus();
  }
  std::printf("%s  %s  %u tokens, %s\n", last.done().id().c_str(), last.done().name().c_str(),
              last.done().tokens(),
              last.done().on_server() ? "precomputed on the server"
                                      : "kept here, computed when first used");
  PrintDegraded(last.degraded());
  return absl::OkStatus();
}

absl::Status Ls(const ClientOptions& o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o));
  grpc::ClientContext context;
  Client::SetDeadline(&context);
  const InterruptWatch::Scope scope(client->watch(), &context);
  v1::ListContextsResponse response;
  RETURN_IF_ERROR(client->Finish(client->stub()->ListContexts(&context, {}, &response)));
  if (o.json) {
    Json contexts = Json::array();
    for (const v1::EdgeContext& c : response.contexts()) contexts.push_back(ToJson(c));
    std::printf("%s\n", Dump({{"contexts", std::move(contexts)},
                              {"degraded", Reasons(response.degraded())}})
                            .c_str());
    return absl::OkStatus();
  }
  size_t width = 4;
  for (const v1::EdgeContext& c : response.contexts()) width = std::max(width, c.name().size());
  if (response.contexts_size() > 0) {
    std::printf("%-16s  %-*s  %8s  %-9s  %-6s  %s\n", "ID", static_cast<int>(width), "NAME",
                "TOKENS", "SERVER", "LOADED", "CODEC");
  }
  for (const v1::EdgeContext& c : response.contexts()) {
    std::printf("%-16s  %-*s  %8u  %-9s  %-6s  %s\n", c.id().substr(0, 16).c_str(),
                static_cast<int>(width), c.name().c_str(), c.tokens(),
                c.on_server() ? HumanBytes(c.stored_bytes()).c_str() : "-",
                c.loaded() ? "yes" : "-", c.codec().c_str());
  }
  PrintDegraded(response.degraded());
  return absl::OkStatus();
}

absl::Status Show(const OneContext& o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o.client));
  grpc::ClientContext context;
  Client::SetDeadline(&context);
  const InterruptWatch::Scope scope(client->watch(), &context);
  v1::ShowContextRequest request;
  request.set_context(o.context);
  RETURN_IF_ERROR(CheckUtf8(request));
  v1::EdgeContext response;
  RETURN_IF_ERROR(client->Finish(client->stub()->ShowContext(&context, request, &response)));
  if (o.client.json) {
    std::printf("%s\n", Dump(ToJson(response)).c_str());
  } else {
    PrintContext(response);
  }
  return absl::OkStatus();
}

absl::Status Rm(const OneContext& o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o.client));
  grpc::ClientContext context;
  Client::SetDeadline(&context);
  const InterruptWatch::Scope scope(client->watch(), &context);
  v1::DeleteContextRequest request;
  request.set_context(o.context);
  RETURN_IF_ERROR(CheckUtf8(request));
  v1::DeleteContextResponse response;
  RETURN_IF_ERROR(client->Finish(client->stub()->DeleteContext(&context, request, &response)));
  if (o.client.json)
    std::printf("%s\n", Dump({{"degraded", Reasons(response.degraded())}}).c_str());
  if (!o.client.json) PrintDegraded(response.degraded());
  return absl::OkStatus();
}

}  // namespace

void AddContextCommands(CLI::App* app, int* exit_code) {
  CLI::App* group = app->add_subcommand("context", "Add, list, show and remove contexts");
  group->require_subcommand(1);

  auto add_options = std::make_shared<AddOptions>();
  CLI::App* add = group->add_subcommand("add", "Add a document, and have the server precompute it");
  add->add_option("file", add_options->file, "text file, - for stdin")->required();
  add->add_option("--name", add_options->name, "what to call it; default: the file's name");
  add->add_option("--system", add_options->system,
                  "system prompt before it; default: the template's");
  add->add_option("--codec", add_options->codec, "codec of the stored KV; default: the daemon's");
  add->add_flag("--raw", add_options->raw, "plain tokens, no chat template");
  AddClientOptions(add, &add_options->client);
  add->footer(
      "examples:\n  sparkv context add manual.txt --name manual\n  zcat log.gz | sparkv context "
      "add - --name log");
  add->callback([=] { *exit_code = Report(Add(*add_options), add_options->client.json); });

  auto ls_options = std::make_shared<ClientOptions>();
  CLI::App* ls = group->add_subcommand("ls", "List contexts, the newest first");
  AddClientOptions(ls, ls_options.get());
  ls->callback([=] { *exit_code = Report(Ls(*ls_options), ls_options->json); });

  auto show_options = std::make_shared<OneContext>();
  CLI::App* show = group->add_subcommand("show", "Show one context");
  show->add_option("context", show_options->context, "id, unique prefix of it, or name")
      ->required();
  AddClientOptions(show, &show_options->client);
  show->callback([=] { *exit_code = Report(Show(*show_options), show_options->client.json); });

  auto rm_options = std::make_shared<OneContext>();
  CLI::App* rm = group->add_subcommand("rm", "Remove a context, here and on the server");
  rm->add_option("context", rm_options->context, "a name removes that name; an id all names of it")
      ->required();
  AddClientOptions(rm, &rm_options->client);
  rm->callback([=] { *exit_code = Report(Rm(*rm_options), rm_options->client.json); });
}

}  // namespace sparkv::cli

#include "edge/cli/ask.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/rpc/message_utf8.h"
#include "edge/cli/client.h"
#include "edge/cli/exit_code.h"
#include "edge/cli/input.h"
#include "edge/cli/json_output.h"
#include "edge/cli/progress.h"
#include "edge/policy_name.h"
#include "edge/cli/timeline.h"

namespace sparkv::cli {
namespace {

struct AskOptions {
  ClientOptions client;
  std::vector<std::string> words;  // [CONTEXT] [QUESTION]
  bool no_context = false;
  std::string prompt_file;
  std::string token_file;
  bool parse_special = false;
  bool ids = false;
  bool timeline = false;
  bool quiet = false;
  std::string policy;
  v1::GenerateRequest request;
  std::vector<std::string> stop;
  float temperature = 0, top_p = 0, min_p = 0, repetition_penalty = 0;
  uint32_t top_k = 0, level = 0, max_tokens = 0, logprobs = 0, slo_ms = 0;
  uint64_t seed = 0;
  bool raw = false, drop_loaded = false, ignore_eos = false;
  std::string session;
};

// CLI11 would take -1 and what is too large for 2^64 - 1.
const CLI::Validator kUnsigned(
    [](const std::string& text) {
      uint64_t value = 0;
      return absl::SimpleAtoi(text, &value)
                 ? std::string()
                 : absl::StrCat("got ", text, ", 0 to 18446744073709551615 are allowed");
    },
    "UINT");

void AddGenerateOptions(CLI::App* command, AskOptions* o) {
  command->add_option("--policy", o->policy, PolicyNames() + "; default: the daemon's")
      ->check(CLI::IsMember(AllPolicyNames()));
  command->add_option("--level", o->level,
                      "codec level of streamed blocks; 0: the daemon's default");
  command->add_option("--slo-ms", o->slo_ms,
                      "with --policy stream: take the highest codec level that is predicted to "
                      "bring the first token within so many milliseconds, whatever --level says; "
                      "0: the daemon's default");
  command->add_option("-n,--max-tokens", o->max_tokens, "longest answer in tokens; 0: 256");
  command->add_option("--temperature", o->temperature, "0: greedy");
  command->add_option("--top-k", o->top_k, "0: off");
  command->add_option("--top-p", o->top_p, "0 or 1: off");
  command->add_option("--min-p", o->min_p, "0: off");
  command->add_option("--repetition-penalty", o->repetition_penalty, "0 or 1: off");
  command->add_option("--seed", o->seed, "0: a random one, told in the summary")->check(kUnsigned);
  command
      ->add_option("--stop", o->stop, "end the answer before this text; may be given several times")
      ->take_all()
      ->expected(1);
  command->add_flag("--ignore-eos", o->ignore_eos, "go on after the end of text");
  command->add_flag("--raw", o->raw, "plain tokens, no chat template");
  command->add_flag("--timeline", o->timeline,
                    "draw which layer and column was streamed or computed when");
  command->add_flag("--drop-loaded", o->drop_loaded, "forget the context's loaded KV first");
  command->add_flag("-q,--quiet", o->quiet, "the answer only");
}

void FillRequest(const AskOptions& o, v1::GenerateRequest* request) {
  request->set_raw(o.raw);
  request->set_max_tokens(o.max_tokens);
  v1::Sampling* sampling = request->mutable_sampling();
  sampling->set_temperature(o.temperature);
  sampling->set_top_k(o.top_k);
  sampling->set_top_p(o.top_p);
  sampling->set_min_p(o.min_p);
  sampling->set_repetition_penalty(o.repetition_penalty);
  sampling->set_seed(o.seed);
  for (const std::string& stop : o.stop) request->add_stop(stop);
  request->set_logprobs(o.logprobs);
  if (!o.policy.empty()) request->set_policy(*PolicyOfName(o.policy));
  request->set_level(o.level);
  request->set_slo_ms(o.slo_ms);
  request->set_ignore_eos(o.ignore_eos);
  request->set_drop_loaded(o.drop_loaded);
  request->set_session(o.session);
}

void PrintSummary(const v1::GenerateResponse::Result& result) {
  const v1::Usage& usage = result.usage();
  const v1::Ttft& ttft = result.ttft();
  std::fprintf(
      stderr,
      "first token after %.0f ms: queue %.0f, look-up %.0f, stream %.0f, decode %.0f, final %.0f, "
      "compute %.0f, stall %.0f, "
      "query %.0f, first step %.0f (parts overlap)\n",
      ttft.total_ms(), ttft.queue_ms(), ttft.lookup_ms(), ttft.stream_ms(), ttft.decode_ms(),
      ttft.final_ms(), ttft.compute_ms(), ttft.stall_ms(), ttft.query_prefill_ms(),
      ttft.first_step_ms());
  if (ttft.profile_ms() > 0) {
    std::fprintf(stderr, "waited %.0f ms for the codec's profile, %s\n", ttft.profile_ms(),
                 HumanBytes(usage.profile_bytes()).c_str());
  }
  std::string policy = usage.policy();
  if (usage.level() > 0) absl::StrAppend(&policy, ", level ", usage.level());
  std::fprintf(stderr,
               "policy %s; context %u tokens, question %u, answer %u (%s) at %.1f tokens/s; %s "
               "fetched; blocks: %u "
               "streamed, %u computed, %u resident\n",
               policy.c_str(), usage.context_tokens(), usage.prompt_tokens(),
               usage.completion_tokens(), usage.finish_reason().c_str(),
               usage.decode_tokens_per_s(), HumanBytes(usage.bytes_fetched()).c_str(),
               usage.blocks_streamed(), usage.blocks_computed(), usage.blocks_resident());
  for (const std::string& reason : result.degraded())
    std::fprintf(stderr, "degraded: %s\n", reason.c_str());
}

// Runs one request and prints what comes.
absl::Status RunOne(Client* client, const AskOptions& o, const v1::GenerateRequest& request,
                    v1::GenerateResponse::Result* result_out = nullptr) {
  RETURN_IF_ERROR(CheckUtf8(request));
  grpc::ClientContext context;
  const InterruptWatch::Scope scope(client->watch(), &context);
  const bool json = o.client.json;
  Progress progress("loading", "blocks", json || o.quiet);
  auto reader = client->stub()->Generate(&context, request);
  v1::GenerateResponse response;
  v1::GenerateResponse::Result result;
  Json tokens = Json::array();
  std::string text;
  std::vector<int32_t> ids;
  uint32_t position = 0;
  while (reader->Read(&response)) {
    if (response.has_queued() && response.queued().position() != position) {
      position = response.queued().position();
      if (!json && !o.quiet) std::fprintf(stderr, "queued: %u before this one\n", position);
    } else if (response.has_loading()) {
      progress.Update(response.loading().blocks_done(), response.loading().blocks_total());
    } else if (response.has_token()) {
      progress.Clear();
      const v1::GenerateResponse::Token& token = response.token();
      ids.push_back(token.id());
      text += token.text();
      if (json) {
        tokens.push_back(ToJson(token));
      } else if (!o.ids) {
        std::fwrite(token.text().data(), 1, token.text().size(), stdout);
        if (o.logprobs > 0) {
          std::fprintf(stderr, "\n[%d %.4f]", token.id(), token.logprob());
          for (const v1::TokenLogprob& top : token.top())
            std::fprintf(stderr, " %d %.4f", top.id(), top.logprob());
          std::fputc('\n', stderr);
        }
        std::fflush(stdout);
      }
    } else if (response.has_result()) {
      result = response.result();
    }
  }
  const absl::Status status = client->Finish(reader->Finish());
  if (!json && !o.ids && !text.empty()) std::fputc('\n', stdout);
  std::fflush(stdout);
  RETURN_IF_ERROR(status);
  if (result_out != nullptr) *result_out = result;
  if (json) {
    Json out = {{"text", text}, {"ids", ids}, {"tokens", std::move(tokens)}};
    out.update(ToJson(result, o.timeline));
    std::printf("%s\n", Dump(out).c_str());
    return absl::OkStatus();
  }
  if (o.ids) {
    for (size_t i = 0; i < ids.size(); ++i) std::printf(i == 0 ? "%d" : " %d", ids[i]);
    std::printf("\n");
  }
  if (o.quiet) return absl::OkStatus();
  std::fflush(stdout);
  PrintSummary(result);
  if (o.timeline) {
    const std::string drawn = DrawTimeline(result, 30, TerminalWidth() - 8);
    std::fputs(drawn.empty() ? "nothing was loaded: no timeline\n" : drawn.c_str(), stderr);
  }
  return absl::OkStatus();
}

// CONTEXT and QUESTION, as far as other options don't stand for them.
void CheckWords(const AskOptions& o) {
  const bool from_file = !o.prompt_file.empty() || !o.token_file.empty();
  const size_t expected = (o.no_context ? 0 : 1) + (from_file ? 0 : 1);
  if (o.words.size() == expected) return;
  throw CLI::ValidationError(
      "ask", absl::StrCat("got ", o.words.size(), " words, expected ", expected, ":",
                          o.no_context ? "" : " CONTEXT", from_file ? "" : " QUESTION",
                          "; put quotes around a question with spaces"));
}

absl::Status FillPrompt(const AskOptions& o, Client* client, v1::GenerateRequest* request) {
  std::string question;
  if (!o.no_context) {
    // On the wire an empty context means none.
    if (o.words.front().empty())
      return absl::InvalidArgumentError("CONTEXT is empty; --no-context asks without one");
    request->set_context(o.words.front());
  }
  if (!o.token_file.empty()) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadTokenFile(o.token_file));
    request->mutable_question_tokens()->Add(ids.begin(), ids.end());
    return absl::OkStatus();
  }
  if (o.prompt_file.empty()) {
    question = o.words.back();
  } else {
    ASSIGN_OR_RETURN(question, ReadText(o.prompt_file));
  }
  if (o.parse_special) {
    std::shared_ptr<const Model> loaded;
    const Model* model = client->local_model();
    if (model == nullptr) {
      if (o.client.model.empty())
        return absl::InvalidArgumentError("--parse-special needs --model, for its tokenizer");
      ASSIGN_OR_RETURN(loaded, Model::Load(o.client.model));
      model = loaded.get();
    }
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                     model->tokenizer().Encode(question, {.parse_special = true}));
    if (ids.empty()) return absl::InvalidArgumentError("question: the prompt is empty");
    request->mutable_question_tokens()->Add(ids.begin(), ids.end());
    return absl::OkStatus();
  }
  request->set_question(question);
  return absl::OkStatus();
}

absl::Status Ask(const AskOptions& o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o.client));
  v1::GenerateRequest request;
  FillRequest(o, &request);
  RETURN_IF_ERROR(FillPrompt(o, client.get(), &request));
  return RunOne(client.get(), o, request);
}

absl::Status Chat(AskOptions o) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(o.client));
  bool may_be_forgotten = !o.session.empty();
  if (o.session.empty()) {
    std::random_device random;
    o.session = absl::StrFormat("cli-%08x%08x", random(), random());
  }
  if (!o.no_context) {  // before the first turn, so that a wrong name shows at once
    grpc::ClientContext context;
    Client::SetDeadline(&context);
    const InterruptWatch::Scope scope(client->watch(), &context);
    v1::ShowContextRequest show;
    show.set_context(o.words.front());
    RETURN_IF_ERROR(CheckUtf8(show));
    v1::EdgeContext shown;
    RETURN_IF_ERROR(client->Finish(client->stub()->ShowContext(&context, show, &shown)));
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) std::fprintf(stderr, "an empty line or Ctrl-D ends the chat\n");
  std::string line;
  while (true) {
    if (terminal) {
      std::fputs("> ", stderr);
      std::fflush(stderr);
    }
    if (!std::getline(std::cin, line) || line.empty()) break;
    v1::GenerateRequest request;
    FillRequest(o, &request);
    if (!o.no_context) request.set_context(o.words.front());
    request.set_question(line);
    v1::GenerateResponse::Result result;
    RETURN_IF_ERROR(RunOne(client.get(), o, request, &result));
    if (may_be_forgotten && result.usage().session_tokens() == 0 && !o.quiet && !o.client.json)
      std::fprintf(stderr, "note: the daemon knew no chat '%s'; it began here\n",
                   o.session.c_str());
    may_be_forgotten = false;
    o.drop_loaded = false;  // once
  }
  return absl::OkStatus();
}

}  // namespace

void AddAskCommands(CLI::App* app, int* exit_code) {
  auto ask_options = std::make_shared<AskOptions>();
  CLI::App* ask =
      app->add_subcommand("ask", "Ask a question about a context; the answer streams to stdout");
  ask->add_option("words", ask_options->words,
                  "CONTEXT (id, unique prefix of it, or name) and QUESTION");
  AddClientOptions(ask, &ask_options->client);
  AddGenerateOptions(ask, ask_options.get());
  ask->add_flag("--no-context", ask_options->no_context,
                "no CONTEXT: the question is the whole prompt");
  ask->add_option("--prompt-file", ask_options->prompt_file,
                  "read the question from a file, - for stdin");
  ask->add_option("--token-ids", ask_options->token_file,
                  "instead of a question: a file of token ids");
  ask->add_flag("--parse-special", ask_options->parse_special,
                "the question's text may hold special tokens like <|im_start|> (implies --raw; "
                "needs --model)");
  ask->add_flag("--ids", ask_options->ids, "print the answer's token ids instead of its text");
  ask->add_option("--logprobs", ask_options->logprobs, "print the n best tokens of each step")
      ->check(CLI::Range(0, 20));
  ask->footer(
      "examples:\n"
      "  sparkv ask manual \"How do I reset the device?\" --timeline\n"
      "  sparkv ask manual --prompt-file question.txt --policy stream --json\n"
      "  sparkv ask --local --model M.gguf --no-context --raw \"Once upon a time\" -n 32");
  ask->callback([=] {
    CheckWords(*ask_options);
    *exit_code = Report(Ask(*ask_options), ask_options->client.json);
  });

  auto chat_options = std::make_shared<AskOptions>();
  CLI::App* chat =
      app->add_subcommand("chat", "Talk about a context; each line of stdin is a turn");
  chat->add_option("context", chat_options->words, "id, unique prefix of it, or name")
      ->expected(0, 1);
  AddClientOptions(chat, &chat_options->client);
  AddGenerateOptions(chat, chat_options.get());
  chat->add_flag("--no-context", chat_options->no_context, "no CONTEXT");
  chat->add_option("--session", chat_options->session,
                   "go on with an earlier chat; default: a new one");
  chat->footer("example:\n  sparkv chat manual");
  chat->callback([=] {
    if (chat_options->words.empty() != chat_options->no_context) {
      throw CLI::ValidationError("chat", "give a CONTEXT or --no-context");
    }
    *exit_code = Report(Chat(*chat_options), chat_options->client.json);
  });
}

}  // namespace sparkv::cli

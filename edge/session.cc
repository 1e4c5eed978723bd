#include "edge/session.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/message_utf8.h"
#include "edge/event_queue.h"
#include "edge/generation.h"
#include "edge/prompt.h"

namespace sparkv {
namespace {

constexpr uint32_t kDefaultMaxTokens = 256;
constexpr size_t kMaxQuestionBytes = size_t{1} << 20;
constexpr uint32_t kMaxLogprobs = 20;
constexpr size_t kMaxSessionBytes = 128;
constexpr size_t kMaxChats = 256;
constexpr uint32_t kMaxSloMs = 3600000;
// How soon a vanished client is noticed.
constexpr absl::Duration kPoll = absl::Milliseconds(20);

double Milliseconds(absl::Duration d) { return absl::ToDoubleMilliseconds(d); }

std::string ContextKey(const Digest& id) { return absl::StrCat("c:", DigestToHex(id)); }
std::string ChatKey(const std::string& session) { return absl::StrCat("s:", session); }

uint64_t RandomSeed() {
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32 | device()) >> 1;
  return seed == 0 ? 1 : seed;
}

absl::Status CheckPolicy(v1::Policy policy) {
  if (v1::Policy_IsValid(policy)) return absl::OkStatus();
  std::vector<std::string> allowed;
  for (const PolicyEntry& entry : Policies())
    allowed.push_back(absl::StrCat(static_cast<int>(entry.policy), " (", entry.name, ")"));
  return absl::InvalidArgumentError(absl::StrCat("policy: got ", static_cast<int>(policy),
                                                 ", allowed: ", absl::StrJoin(allowed, ", ")));
}

}  // namespace

// One request. Filled by the RPC's thread, then handed to the engine thread.
struct Sessions::Work {
  v1::GenerateRequest request;  // of Load: context, policy, level, drop_loaded
  bool load_only = false;
  std::optional<ResolvedContext> context;
  uint32_t level = 0;   // of the context's codec
  uint32_t slo_ms = 0;  // with policy stream: what chooses the level instead; 0: nothing
  GenerationOptions generation;
  std::optional<StopStrings> stops;
  absl::Duration received;
  absl::Duration posted;
  CancelToken cancel;
  EventQueue<v1::GenerateResponse> events;

  // On the engine thread:
  std::vector<int32_t> ids;  // context, earlier turns, question; then the answer
  size_t context_tokens = 0;
  uint32_t held_level = 0;             // HeldKv::level of what the cache holds
  std::shared_ptr<HeldPlanes> planes;  // of the context, while a higher level replaces its KV
  v1::GenerateResponse::Result result;

  std::string context_key() const { return context ? ContextKey(context->entry.id) : ""; }
};

absl::StatusOr<std::unique_ptr<Sessions>> Sessions::Create(std::shared_ptr<const Model> model,
                                                           Contexts* contexts,
                                                           const SessionOptions& options) {
  ASSIGN_OR_RETURN(
      std::shared_ptr<KvPagePool> pool,
      KvPagePool::Create(model->config().Geometry(options.kv_dtype), options.kv_budget_bytes));
  std::unique_ptr<Sessions> sessions(
      new Sessions(std::move(model), contexts, options, std::move(pool)));
  Sessions* self = sessions.get();
  absl::Notification made;
  absl::Status status;
  RETURN_IF_ERROR(self->engine_.Post(
      {.run =
           [self, &made, &status] {
             self->decoder_ = std::make_unique<Decoder>(self->model_, self->options_.decoder);
             self->loader_ = std::make_unique<ContextLoader>(
                 self->decoder_.get(), self->contexts_->server(), self->options_.link);
             // Only a link makes it worth knowing what computing costs.
             if (self->contexts_->server() != nullptr)
               status = self->loader_->Calibrate(self->options_.kv_dtype);
             made.Notify();
           },
       .dropped = [&made](absl::Status) { made.Notify(); }}));
  made.WaitForNotification();
  RETURN_IF_ERROR(status);
  return sessions;
}

Sessions::Sessions(std::shared_ptr<const Model> model, Contexts* contexts,
                   const SessionOptions& options, std::shared_ptr<KvPagePool> pool)
    : model_(std::move(model)),
      contexts_(contexts),
      options_(options),
      kv_(std::move(pool)),
      engine_(options.max_queue) {}

Sessions::~Sessions() { engine_.Shutdown(); }

absl::Status Sessions::Generate(const v1::GenerateRequest& request, const Client& client) {
  auto work = std::make_shared<Work>();
  work->received = RealClock().Now();
  work->request = request;
  const uint32_t context_length = model_->config().context_length;
  if (request.question().size() > kMaxQuestionBytes) {
    return absl::InvalidArgumentError(absl::StrCat("question: got ", request.question().size(),
                                                   " bytes, at most ", kMaxQuestionBytes,
                                                   " are allowed"));
  }
  if (request.max_tokens() > context_length) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens: got ", request.max_tokens(),
                                                   ", at most the model's context of ",
                                                   context_length, " is allowed"));
  }
  if (request.logprobs() > kMaxLogprobs) {
    return absl::InvalidArgumentError(absl::StrCat("logprobs: got ", request.logprobs(), ", 0 to ",
                                                   kMaxLogprobs, " are allowed"));
  }
  if (request.session().size() > kMaxSessionBytes) {
    return absl::InvalidArgumentError(absl::StrCat("session: got ", request.session().size(),
                                                   " bytes, at most ", kMaxSessionBytes,
                                                   " are allowed"));
  }
  RETURN_IF_ERROR(CheckPolicy(request.policy()));
  if (request.slo_ms() > kMaxSloMs) {
    return absl::InvalidArgumentError(
        absl::StrCat("slo_ms: got ", request.slo_ms(), ", 0 to ", kMaxSloMs, " are allowed"));
  }
  SamplingOptions& sampling = work->generation.sampling;
  sampling.temperature = request.sampling().temperature();
  sampling.top_k = request.sampling().top_k();
  sampling.top_p = request.sampling().top_p() == 0 ? 1 : request.sampling().top_p();
  sampling.min_p = request.sampling().min_p();
  sampling.repetition_penalty =
      request.sampling().repetition_penalty() == 0 ? 1 : request.sampling().repetition_penalty();
  sampling.seed = request.sampling().seed() == 0 ? RandomSeed() : request.sampling().seed();
  RETURN_IF_ERROR(sampling.Validate());
  work->generation.max_tokens =
      request.max_tokens() == 0 ? kDefaultMaxTokens : request.max_tokens();
  work->generation.logprobs = request.logprobs();
  work->generation.ignore_eos = request.ignore_eos();
  ASSIGN_OR_RETURN(work->stops,
                   StopStrings::Create({request.stop().begin(), request.stop().end()}));
  for (const int32_t id : request.question_tokens()) {
    if (id < 0 || id >= model_->tokenizer().size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "question_tokens: got ", id, ", 0 to ", model_->tokenizer().size() - 1, " are allowed"));
    }
  }
  if (request.question_tokens_size() > 0 && !request.question().empty()) {
    return absl::InvalidArgumentError(
        "question_tokens: only one of question and question_tokens may be given");
  }
  return Enqueue(std::move(work), client);
}

absl::Status Sessions::Load(const v1::LoadRequest& request, const Client& client) {
  auto work = std::make_shared<Work>();
  work->received = RealClock().Now();
  work->load_only = true;
  if (request.context().empty()) return absl::InvalidArgumentError("context: it is empty");
  RETURN_IF_ERROR(CheckPolicy(request.policy()));
  work->request.set_context(request.context());
  work->request.set_policy(request.policy());
  work->request.set_level(request.level());
  work->request.set_drop_loaded(request.drop_loaded());
  return Enqueue(std::move(work), client);
}

bool Sessions::GoodEnough(const HeldKv* held, const Work& work) const {
  if (held == nullptr || held->level == 0) return held != nullptr;
  const v1::GenerateRequest& request = work.request;
  if (work.context && request.policy() == v1::POLICY_LOCAL) return false;
  if (work.slo_ms > 0) return true;  // nothing brings the first token sooner
  return work.level <= held->level;
}

absl::Status Sessions::Enqueue(std::shared_ptr<Work> work, const Client& client) {
  v1::GenerateRequest& request = work->request;
  if (request.policy() == v1::POLICY_UNSPECIFIED) request.set_policy(options_.policy);
  if (request.policy() == v1::POLICY_STREAM && !work->load_only) {
    const uint32_t fallback = request.level() == 0 ? options_.slo_ms : 0;
    work->slo_ms = request.slo_ms() > 0 ? request.slo_ms() : fallback;
  }
  if (!request.context().empty()) {
    // A resident context needs nothing from the server; if it is evicted meanwhile, the engine
    // thread asks.
    const bool want_manifest = request.policy() != v1::POLICY_LOCAL;
    absl::StatusOr<ResolvedContext> context =
        contexts_->Resolve(request.context(), [&client] { return !client.alive(); });
    if (!context.ok()) return context.status();
    work->context = *std::move(context);
    ASSIGN_OR_RETURN(work->level,
                     contexts_->LevelFor(work->context->entry, request.level(), options_.level));
    if (want_manifest &&
        (request.drop_loaded() || !GoodEnough(kv_.Find(work->context_key()).get(), *work))) {
      contexts_->LookUp(&*work->context, [&client] { return !client.alive(); });
    }
  }
  work->posted = RealClock().Now();
  RETURN_IF_ERROR(engine_.Post(
      {.run = [this, work] { work->events.Finish(Run(work.get())); },
       .dropped = [work](absl::Status status) { work->events.Finish(std::move(status)); },
       .position =
           [work](uint32_t position) {
             v1::GenerateResponse response;
             response.mutable_queued()->set_position(position);
             work->events.Push(std::move(response));
           },
       .cancel = work->cancel}));
  bool gone = false;
  while (true) {
    std::optional<absl::Status> finished;
    const std::optional<v1::GenerateResponse> event = work->events.Pop(kPoll, &finished);
    if (finished) return *finished;
    if (!gone && (!client.alive() || (event && !client.write(*event)))) {
      gone = true;
      work->cancel.Cancel();
      engine_.Kick();
    }
  }
}

absl::StatusOr<Sessions::Chat> Sessions::FindChat(const Work& work) const {
  const std::string id = work.context ? DigestToHex(work.context->entry.id) : "";
  absl::MutexLock lock(&chats_mutex_);
  for (const Chat& chat : chats_) {
    if (chat.name != work.request.session()) continue;
    if (chat.context != id) {
      return absl::InvalidArgumentError(
          absl::StrCat("session: '", chat.name, "' is a chat about ",
                       chat.context.empty() ? "no context" : chat.context));
    }
    return chat;
  }
  return Chat{.name = work.request.session(), .context = id};
}

void Sessions::SaveChat(Work* work, std::unique_ptr<KvCache> cache) {
  const std::string& name = work->request.session();
  {
    absl::MutexLock lock(&chats_mutex_);
    chats_.remove_if([&](const Chat& chat) { return chat.name == name; });
    chats_.push_front({.name = name,
                       .context = work->context ? DigestToHex(work->context->entry.id) : "",
                       .turns = {work->ids.begin() + static_cast<ptrdiff_t>(work->context_tokens),
                                 work->ids.end()}});
    while (chats_.size() > kMaxChats) {
      kv_.Drop(ChatKey(chats_.back().name));
      chats_.pop_back();
    }
  }
  kv_.Put(ChatKey(name), {.cache = std::move(cache), .level = work->held_level});
}

absl::Status Sessions::Run(Work* work) {
  v1::Ttft* ttft = work->result.mutable_ttft();
  v1::Usage* usage = work->result.mutable_usage();
  ttft->set_queue_ms(Milliseconds(RealClock().Now() - work->posted));
  const v1::GenerateRequest& request = work->request;
  if (work->context) {
    work->ids = work->context->entry.tokens;
    work->context_tokens = work->ids.size();
  }
  Chat chat;
  if (!work->load_only) {
    if (!request.session().empty()) {
      ASSIGN_OR_RETURN(chat, FindChat(*work));
      work->ids.insert(work->ids.end(), chat.turns.begin(), chat.turns.end());
    }
    std::vector<int32_t> question(request.question_tokens().begin(),
                                  request.question_tokens().end());
    if (question.empty()) {
      const bool raw = request.raw() || (work->context && work->context->entry.raw);
      ASSIGN_OR_RETURN(
          question,
          QuestionIds(*model_, request.question(),
                      {.after_context = work->context.has_value(), .raw = raw, .turns = chat.turns},
                      [work] { return work->cancel.cancelled(); }));
    }
    work->ids.insert(work->ids.end(), question.begin(), question.end());
    usage->set_prompt_tokens(static_cast<uint32_t>(question.size()));
    usage->set_session_tokens(static_cast<uint32_t>(chat.turns.size()));
  }
  usage->set_context_tokens(static_cast<uint32_t>(work->context_tokens));
  const uint64_t context_length = model_->config().context_length;
  const uint64_t room = work->load_only ? 0 : 1;
  if (work->ids.size() + room > context_length) {
    return absl::FailedPreconditionError(
        absl::StrCat("context and question have ", work->ids.size(), " tokens; the model takes ",
                     context_length, room > 0 ? ", at least one of them for the answer" : ""));
  }
  work->generation.max_tokens = static_cast<uint32_t>(
      std::min<uint64_t>(work->generation.max_tokens, context_length - work->ids.size()));

  KvCache cache(kv_.pool());
  std::vector<float> logits(model_->config().vocabulary);
  RETURN_IF_ERROR(Fill(work, &cache, &logits));
  if (!work->load_only) {
    RETURN_IF_ERROR(Answer(work, &cache, &logits));
    if (!request.session().empty()) SaveChat(work, std::make_unique<KvCache>(std::move(cache)));
  } else {
    ttft->set_total_ms(Milliseconds(RealClock().Now() - work->received));
  }
  v1::GenerateResponse response;
  response.mutable_result()->Swap(&work->result);
  MakeUtf8Valid(&response);  // the reasons hold other programs' words
  work->events.Push(std::move(response));
  return absl::OkStatus();
}

// Brings all of work->ids into the cache, from the best source: the chat's own KV, the loaded
// context, or a load.
absl::Status Sessions::Fill(Work* work, KvCache* cache, std::vector<float>* logits) {
  const v1::GenerateRequest& request = work->request;
  v1::Usage* usage = work->result.mutable_usage();
  const std::string context_key = work->context_key();
  const std::string chat_key = request.session().empty() ? "" : ChatKey(request.session());
  if (request.drop_loaded()) {
    kv_.Drop(context_key);
    kv_.Drop(chat_key);
  }
  usage->set_policy(PolicyName(work->context ? request.policy() : v1::POLICY_LOCAL));
  usage->set_seed(work->generation.sampling.seed);

  std::string key = chat_key;
  std::shared_ptr<const HeldKv> held = chat_key.empty() ? nullptr : kv_.Find(chat_key);
  if (!GoodEnough(held.get(), *work)) {
    key = context_key;
    held = work->context ? kv_.Find(context_key) : nullptr;
  }
  if (held != nullptr && !GoodEnough(held.get(), *work)) {
    work->planes = held->planes;
    kv_.Drop(key);
    held = nullptr;
  }
  // At least the last token is run again, for its logits.
  const uint32_t last = static_cast<uint32_t>(work->ids.size()) - (work->load_only ? 0 : 1);
  const uint32_t shared = held == nullptr ? 0 : std::min(held->cache->tokens(), last);
  if (held != nullptr) {
    usage->set_level(held->level);
    work->held_level = held->level;
    usage->set_blocks_resident(ColumnCount(usage->context_tokens()) * model_->config().layers);
    if (work->load_only) return absl::OkStatus();
  }
  // A page beyond the sequence for the first generated tokens, and one for a page that is copied
  // when it is shared.
  const uint64_t tokens = work->ids.size() + 2 * kPageTokens - shared / kPageTokens * kPageTokens;
  RETURN_IF_ERROR(kv_.MakeRoom(tokens, key));
  if (held == nullptr && work->context) return LoadInto(work, cache, logits);
  if (held != nullptr) RETURN_IF_ERROR(cache->SharePrefix(*held->cache, shared));
  const absl::Duration begin = RealClock().Now();
  decoder_->set_dense_from(static_cast<uint32_t>(work->context_tokens));
  RETURN_IF_ERROR(decoder_->Prefill(std::span<const int32_t>(work->ids).subspan(shared), cache,
                                    logits->data(), work->cancel));
  work->result.mutable_ttft()->set_query_prefill_ms(Milliseconds(RealClock().Now() - begin));
  return absl::OkStatus();
}

absl::Status Sessions::LoadInto(Work* work, KvCache* cache, std::vector<float>* logits) {
  ResolvedContext& context = *work->context;
  v1::Usage* usage = work->result.mutable_usage();
  if (work->request.policy() != v1::POLICY_LOCAL && !context.manifest && context.degraded.empty()) {
    // It was resident when the request came.
    contexts_->LookUp(&context, [work] { return work->cancel.cancelled(); });
    RETURN_IF_ERROR(work->cancel.Check());
  }
  const uint32_t context_tokens = static_cast<uint32_t>(work->context_tokens);
  const std::span<const int32_t> query =
      std::span<const int32_t>(work->ids).subspan(context_tokens);
  ContextLoadRequest load{.context = &context,
                          .policy = work->request.policy(),
                          .level = work->level,
                          .slo = absl::Milliseconds(work->slo_ms),
                          .planes = std::move(work->planes),
                          .query = query,
                          .origin = work->received,
                          .cancel = work->cancel};
  load.progress = [work](const v1::GenerateResponse::Loading& loading) {
    v1::GenerateResponse response;
    *response.mutable_loading() = loading;
    work->events.Replace(std::move(response),
                         [](const v1::GenerateResponse& waiting) { return waiting.has_loading(); });
  };
  ASSIGN_OR_RETURN(ContextLoadResult result, loader_->Load(load, cache, logits));

  // The context alone stays for the next question; its full pages are shared with this sequence.
  work->held_level = result.exact ? 0 : result.level;
  HeldKv held{.cache = std::make_unique<KvCache>(kv_.pool()),
              .level = work->held_level,
              .planes = work->held_level > 0 ? std::move(result.planes) : nullptr};
  RETURN_IF_ERROR(held.cache->SharePrefix(*cache, context_tokens));
  if (query.empty() && !work->load_only) {
    // Nothing follows the context: its last token is run again for its logits, in pages of this
    // sequence only.
    *cache = KvCache(kv_.pool());
    RETURN_IF_ERROR(cache->SharePrefix(*held.cache, context_tokens - 1));
    RETURN_IF_ERROR(
        decoder_->Prefill(std::span<const int32_t>(work->ids).subspan(context_tokens - 1), cache,
                          logits->data(), work->cancel));
  }
  kv_.Put(work->context_key(), std::move(held));
  // What was removed meanwhile nobody could name, nor free.
  if (context.recorded && !contexts_->catalogue().Contains(context.entry.id))
    kv_.Drop(work->context_key());

  usage->set_policy(PolicyName(result.policy));
  usage->set_level(result.level);
  usage->set_bytes_fetched(result.bytes_fetched);
  usage->set_blocks_streamed(result.blocks_streamed);
  usage->set_blocks_computed(result.blocks_computed);
  *usage->mutable_migrations() = result.migrations;
  const double queue_ms = work->result.ttft().queue_ms();
  *work->result.mutable_ttft() = result.ttft;
  work->result.mutable_ttft()->set_queue_ms(queue_ms);
  work->result.mutable_ttft()->set_lookup_ms(context.lookup_ms);
  work->result.mutable_ttft()->set_profile_ms(context.profile_ms);
  usage->set_profile_bytes(context.profile_bytes);
  if (!context.degraded.empty()) work->result.add_degraded(context.degraded);
  for (const std::string& reason : result.degraded) work->result.add_degraded(reason);
  work->result.mutable_timeline()->Add(result.timeline.begin(), result.timeline.end());
  return absl::OkStatus();
}

absl::Status Sessions::Answer(Work* work, KvCache* cache, std::vector<float>* logits) {
  v1::Usage* usage = work->result.mutable_usage();
  v1::Ttft* ttft = work->result.mutable_ttft();
  const absl::Duration begin = RealClock().Now();
  const GenerationHooks hooks = {
      .token =
          [work](GeneratedToken token) {
            v1::GenerateResponse response;
            v1::GenerateResponse::Token* out = response.mutable_token();
            out->set_text(std::move(token.text));
            out->set_id(token.sampled.id);
            if (work->generation.logprobs > 0) out->set_logprob(token.sampled.logprob);
            for (const TokenLogprob& top : token.sampled.top) {
              v1::TokenLogprob* one = out->add_top();
              one->set_id(top.id);
              one->set_logprob(top.logprob);
            }
            work->events.Push(std::move(response));
          },
      .make_room = [this, work] { return kv_.MakeRoom(1, work->context_key()); }};
  ASSIGN_OR_RETURN(const GenerationOutcome outcome,
                   sparkv::Generate(decoder_.get(), cache, logits, &work->ids, work->generation,
                                    *std::move(work->stops), work->cancel, hooks));
  ttft->set_first_step_ms(ttft->first_step_ms() + Milliseconds(outcome.first_token - begin));
  ttft->set_total_ms(Milliseconds(outcome.first_token - work->received));
  usage->set_completion_tokens(outcome.tokens);
  usage->set_finish_reason(outcome.finish_reason);
  usage->set_decode_tokens_per_s(outcome.tokens_per_s);
  if (outcome.out_of_memory) {
    work->result.add_degraded("the answer was cut: kv_budget_bytes has no room for more tokens");
  }
  return absl::OkStatus();
}

bool Sessions::Loaded(const Digest& id) const { return kv_.Contains(ContextKey(id)); }

void Sessions::Forget(const Digest& id) { kv_.Drop(ContextKey(id)); }

void Sessions::FillStatus(v1::StatusResponse* status) const {
  status->set_kv_budget_bytes(kv_.pool()->budget_bytes());
  status->set_kv_used_bytes(kv_.pool()->used_bytes());
  status->set_contexts_loaded(kv_.Count("c:"));
  status->set_queue_length(engine_.queue_length());
  status->set_max_queue(engine_.max_queue());
  status->set_default_policy(PolicyName(options_.policy));
}

}  // namespace sparkv

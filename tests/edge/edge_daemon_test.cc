// The daemon over loopback, with the real model and no server.
#include "tests/edge/daemon_fixture.h"

namespace sparkv {
namespace {

using testing::Answer;
using testing::BackgroundAsk;
using testing::Document;
using testing::LocalConfig;
using testing::Prose;
using testing::Question;
using testing::TempFolder;
using testing::TestDaemon;

bool HasToken(const v1::GenerateResponse& response) { return response.has_token(); }
bool HasQueued(const v1::GenerateResponse& response) { return response.has_queued(); }

TEST_CASE("a context is computed once, then asked from memory") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  const auto added = edge.Add(Document("doc", Prose(30)));
  REQUIRE_OK(added);
  CHECK(added->degraded_size() == 0);
  CHECK_FALSE(added->done().on_server());
  const Answer first = edge.Ask(Question("doc", "Who repaired the lighthouse?"));
  REQUIRE_OK(first.status);
  CHECK(first.result.usage().policy() == "local");
  CHECK(first.result.usage().blocks_computed() == 30);
  CHECK(first.result.usage().blocks_resident() == 0);
  CHECK(first.result.usage().context_tokens() == added->done().tokens());
  CHECK(first.result.degraded_size() == 0);
  CHECK(first.result.timeline_size() == 60);  // 30 blocks, 30 query layers
  CHECK(first.ids.size() == first.result.usage().completion_tokens());
  CHECK_FALSE(first.text.empty());

  const Answer second =
      edge.Ask(Question(added->done().id().substr(0, 8), "Who repaired the lighthouse?"));
  REQUIRE_OK(second.status);
  CHECK(second.ids == first.ids);
  CHECK(second.text == first.text);
  CHECK(second.result.usage().blocks_resident() == 30);
  CHECK(second.result.usage().blocks_computed() == 0);
  CHECK(second.result.usage().bytes_fetched() == 0);
  CHECK(second.result.timeline_size() == 0);
  CHECK(edge.Status().contexts_loaded() == 1);

  v1::GenerateRequest again = Question("doc", "Who repaired the lighthouse?");
  again.set_drop_loaded(true);
  const Answer third = edge.Ask(again);
  REQUIRE_OK(third.status);
  CHECK(third.ids == first.ids);
  CHECK(third.result.usage().blocks_computed() == 30);
}

TEST_CASE("the daemon's contexts survive a restart, and a name taken by other content is refused") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  std::string id;
  {
    TestDaemon edge(LocalConfig(folder));
    const auto added = edge.Add(Document("doc", Prose(3)));
    REQUIRE_OK(added);
    id = added->done().id();
    CHECK(edge.Add(Document("doc", Prose(3)))->done().id() == id);
    CHECK(edge.Add(Document("doc", Prose(4))).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  TestDaemon edge(LocalConfig(folder));
  grpc::ClientContext list_context;
  v1::ListContextsResponse list;
  REQUIRE(edge.stub()->ListContexts(&list_context, {}, &list).ok());
  REQUIRE(list.contexts_size() == 1);
  CHECK(list.contexts(0).id() == id);
  CHECK(list.contexts(0).name() == "doc");
  v1::DeleteContextRequest remove;
  remove.set_context("doc");
  v1::DeleteContextResponse removed;
  grpc::ClientContext remove_context;
  REQUIRE(edge.stub()->DeleteContext(&remove_context, remove, &removed).ok());
  CHECK(edge.Ask(Question("doc", "?")).status.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("bad requests get their code and a sentence") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  const auto code = [&](const v1::GenerateRequest& request) {
    return edge.Ask(request).status.code();
  };
  CHECK(code(Question("", "")) == absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest raw = Question("", "");
  raw.set_raw(true);
  CHECK(code(raw) == absl::StatusCode::kInvalidArgument);
  CHECK(code(Question("nobody", "?")) == absl::StatusCode::kNotFound);
  CHECK(code(Question("", std::string((1 << 20) + 1, 'a'))) == absl::StatusCode::kInvalidArgument);
  CHECK(code(Question("", "?", 8193)) == absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest request = Question("", "?");
  request.mutable_sampling()->set_temperature(-1);
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  request = Question("", "?");
  request.mutable_sampling()->set_top_p(1.5f);
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  request = Question("", "?");
  request.set_logprobs(21);
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  request = Question("", "?");
  request.add_stop("");
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  request = Question("", "");
  request.add_question_tokens(49152);
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  request = Question("", "?");
  request.set_policy(static_cast<v1::Policy>(9));
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  request = Question("", "?");
  request.set_session(std::string(129, 's'));
  CHECK(code(request) == absl::StatusCode::kInvalidArgument);
  // Longer than the model's context.
  const Answer too_long = edge.Ask(Question("", Prose(600)));
  CHECK(too_long.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(too_long.status.message()).find("8192") != std::string::npos);
  CHECK(edge.Add(Document("long", Prose(600))).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(edge.Add(Document("empty", "")).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(edge.Add(Document("", "text")).status().code() == absl::StatusCode::kInvalidArgument);
  v1::AddContextRequest codec = Document("codec", "text");
  codec.set_codec("zip");
  CHECK(edge.Add(codec).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a stop string ends the answer before it, log probabilities come with each token") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  v1::GenerateRequest request = Question("", "Count: one, two, three, four,", 24);
  request.set_raw(true);
  request.set_logprobs(3);
  const Answer whole = edge.Ask(request);
  REQUIRE_OK(whole.status);
  REQUIRE(whole.text.size() > 12);
  for (const v1::GenerateResponse::Token& token : whole.tokens) {
    REQUIRE(token.top_size() == 3);
    CHECK(token.top(0).id() == token.id());  // greedy
    CHECK(token.top(0).logprob() == token.logprob());
    CHECK(token.logprob() <= 0);
  }
  // A stop text from the middle of the answer, cut without regard to tokens.
  const std::string stop = whole.text.substr(5, 6);
  request.add_stop(stop);
  const Answer cut = edge.Ask(request);
  REQUIRE_OK(cut.status);
  CHECK(cut.text == whole.text.substr(0, whole.text.find(stop)));
  CHECK(cut.result.usage().finish_reason() == "stop");
  CHECK(cut.ids.size() < whole.ids.size());
}

TEST_CASE("a seed repeats a sampled answer") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  v1::GenerateRequest request = Question("", "Tell me a story.", 12);
  request.mutable_sampling()->set_temperature(1.5f);
  const Answer first = edge.Ask(request);
  REQUIRE_OK(first.status);
  CHECK(first.result.usage().seed() != 0);
  request.mutable_sampling()->set_seed(first.result.usage().seed());
  const Answer second = edge.Ask(request);
  CHECK(second.ids == first.ids);
  CHECK(second.result.usage().seed() == first.result.usage().seed());
}

TEST_CASE("turns of a chat follow each other, from KV memory or without it") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  REQUIRE_OK(edge.Add(Document("doc", Prose(10))));
  std::vector<int32_t> ids[2];
  for (const bool drop : {false, true}) {
    const std::string session = drop ? "dropped" : "kept";
    v1::GenerateRequest request = Question("doc", "What is the text about?", 10);
    request.set_session(session);
    const Answer first = edge.Ask(request);
    REQUIRE_OK(first.status);
    CHECK(first.result.usage().session_tokens() == 0);
    request.set_question("And what else?");
    request.set_drop_loaded(drop);
    const Answer answer = edge.Ask(request);
    REQUIRE_OK(answer.status);
    ids[drop] = answer.ids;
    CHECK((answer.result.usage().blocks_computed() > 0) == drop);
    CHECK(answer.result.usage().prompt_tokens() < 30);  // this turn's own
    CHECK(answer.result.usage().session_tokens() ==
          first.result.usage().prompt_tokens() + first.ids.size());
  }
  CHECK(ids[0] == ids[1]);
  // The same question without the first turn is another prompt.
  v1::GenerateRequest other = Question("", "Hello", 4);
  other.set_session("kept");
  CHECK(edge.Ask(other).status.code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a raw context with an empty raw question continues the text itself") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  const std::string text = "The first law of thermodynamics states that";
  v1::AddContextRequest document = Document("raw", text);
  document.set_raw(true);
  REQUIRE_OK(edge.Add(document));
  v1::GenerateRequest request = Question("raw", "", 16);
  request.set_raw(true);
  const Answer stored = edge.Ask(request);
  REQUIRE_OK(stored.status);
  const Answer stored_again = edge.Ask(request);
  v1::GenerateRequest plain = Question("", text, 16);
  plain.set_raw(true);
  const Answer direct = edge.Ask(plain);
  REQUIRE_OK(direct.status);
  CHECK(stored.ids == direct.ids);
  CHECK(stored_again.ids == direct.ids);
}

TEST_CASE(
    "a context that can never fit KV memory is refused, and others are evicted for a new one") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  EdgeConfig config = LocalConfig(folder);
  config.session.kv_budget_bytes = uint64_t{640} * 23040;  // 640 tokens
  TestDaemon edge(config);
  REQUIRE_OK(edge.Add(Document("a", Prose(12))));
  REQUIRE_OK(edge.Add(Document("b", "Other: " + Prose(12))));
  REQUIRE_OK(edge.Add(Document("big", Prose(60))));
  REQUIRE_OK(edge.Ask(Question("a", "?", 2)).status);
  REQUIRE_OK(edge.Ask(Question("b", "?", 2)).status);
  CHECK(edge.Status().contexts_loaded() == 1);
  const Answer big = edge.Ask(Question("big", "?", 2));
  CHECK(big.status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(big.status.message()).find("kv_budget_bytes") != std::string::npos);
  CHECK(edge.Status().kv_used_bytes() <= config.session.kv_budget_bytes);
  const Answer b = edge.Ask(Question("b", "?", 2));
  CHECK(b.result.usage().blocks_resident() == 30);
}

TEST_CASE("the queue reports positions, refuses when full, and lets go of cancelled requests") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  EdgeConfig config = LocalConfig(folder);
  config.session.max_queue = 1;
  TestDaemon edge(config);
  v1::GenerateRequest endless = Question("", "Go on for ever.", 8000);
  endless.set_ignore_eos(true);

  BackgroundAsk first(&edge, endless, HasToken);
  first.Await();
  BackgroundAsk second(&edge, Question("", "Hello", 2), HasQueued);
  second.Await();
  const Answer refused = edge.Ask(Question("", "Hello", 2));
  CHECK(refused.status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(refused.status.message()).find("max_queue is 1") != std::string::npos);
  CHECK(edge.Status().queue_length() == 2);
  first.CancelAtNextEvent();
  CHECK(first.Join().status.code() == absl::StatusCode::kCancelled);
  const Answer& waiting = second.Join();
  REQUIRE_OK(waiting.status);
  CHECK(waiting.queued == std::vector<uint32_t>{1});
  CHECK(waiting.result.ttft().queue_ms() > 0);
}

TEST_CASE("a client that goes away ends a prefill, and nothing of it stays") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  REQUIRE_OK(edge.Add(Document("doc", Prose(120))));
  const Answer answer =
      edge.Ask(Question("doc", "?"), [](const v1::GenerateResponse&, grpc::ClientContext* context) {
        context->TryCancel();  // at the first sign of loading
      });
  CHECK(answer.status.code() == absl::StatusCode::kCancelled);
  // The next request waits for the engine; when it runs, the cancelled one has ended.
  REQUIRE_OK(edge.Ask(Question("", "Hello", 1)).status);
  CHECK(edge.Status().contexts_loaded() == 0);
  CHECK(edge.Status().kv_used_bytes() == 0);
}

TEST_CASE("stopping the daemon ends what runs and what waits, as Unavailable") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  v1::GenerateRequest endless = Question("", "Go on for ever.", 8000);
  endless.set_ignore_eos(true);
  BackgroundAsk running(&edge, endless, HasToken);
  running.Await();
  BackgroundAsk waiting(&edge, Question("", "Hello", 2), HasQueued);
  waiting.Await();
  edge.daemon()->Stop();
  for (const absl::Status& status : {running.Join().status, waiting.Join().status}) {
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(std::string(status.message()).find("shutting down") != std::string::npos);
  }
}

TEST_CASE("a Unix socket works, and a taken folder and a taken or malformed address are errors") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  EdgeConfig config = LocalConfig(folder);
  config.listen = "unix:" + folder.path() + "/edge.sock";
  TestDaemon edge(config);
  CHECK(edge.Status().context_length() == 8192);
  CHECK(edge.Status().server_state() == "none");
  TempFolder other;
  EdgeConfig same = config;
  same.data_dir = other.path();
  CHECK(EdgeDaemon::Start(same).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(edge.Status().context_length() == 8192);  // still there
  EdgeConfig tcp = LocalConfig(other);
  TestDaemon holder(tcp);
  const absl::Status taken = EdgeDaemon::Start(LocalConfig(other)).status();
  CHECK(taken.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(taken.message()).find("in use by another process") != std::string::npos);
  TempFolder third;
  tcp.data_dir = third.path();
  tcp.listen = holder.daemon()->address();
  CHECK(EdgeDaemon::Start(tcp).status().code() == absl::StatusCode::kUnavailable);
  tcp.listen = "127.0.0.1";
  CHECK(EdgeDaemon::Start(tcp).status().code() == absl::StatusCode::kInvalidArgument);
  tcp.listen = "127.0.0.1:0";
  tcp.model = folder.path() + "/absent.gguf";
  CHECK(EdgeDaemon::Start(tcp).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sparkv

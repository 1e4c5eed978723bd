// An edge daemon inside the test's process, and short ways to call it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/rpc/status_conv.h"
#include "edge/edge_daemon.h"
#include "sparkv/v1/edge.grpc.pb.h"
#include "tests/catch.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace sparkv::testing {

struct Answer {
  absl::Status status;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<v1::GenerateResponse::Token> tokens;
  std::vector<uint32_t> queued;
  v1::GenerateResponse::Result result;

  std::string degraded() const {
    std::string all;
    for (const std::string& reason : result.degraded()) all += reason + "\n";
    return all;
  }
};

class TestDaemon {
 public:
  explicit TestDaemon(const EdgeConfig& config) {
    absl::StatusOr<std::unique_ptr<EdgeDaemon>> daemon = EdgeDaemon::Start(config);
    REQUIRE_OK(daemon);
    daemon_ = *std::move(daemon);
    stub_ = v1::Edge::NewStub(
        config.listen.empty()
            ? daemon_->InProcessChannel()
            : grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  }

  EdgeDaemon* daemon() { return daemon_.get(); }
  v1::Edge::Stub* stub() { return stub_.get(); }

  // on_event may cancel the context it gets.
  Answer Ask(const v1::GenerateRequest& request,
             const std::function<void(const v1::GenerateResponse&, grpc::ClientContext*)>&
                 on_event = nullptr) {
    grpc::ClientContext context;
    auto reader = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (on_event) on_event(response, &context);
      if (response.has_queued()) answer.queued.push_back(response.queued().position());
      if (response.has_result()) answer.result = response.result();
      if (!response.has_token()) continue;
      answer.text += response.token().text();
      answer.ids.push_back(response.token().id());
      answer.tokens.push_back(response.token());
    }
    answer.status = FromGrpc(reader->Finish());
    return answer;
  }

  absl::StatusOr<v1::AddContextResponse> Add(const v1::AddContextRequest& request) {
    grpc::ClientContext context;
    auto reader = stub_->AddContext(&context, request);
    v1::AddContextResponse response;
    v1::AddContextResponse last;
    while (reader->Read(&response)) last = response;
    const absl::Status status = FromGrpc(reader->Finish());
    if (!status.ok()) return status;
    return last;
  }

  v1::StatusResponse Status() {
    grpc::ClientContext context;
    v1::StatusResponse response;
    const absl::Status status = FromGrpc(stub_->Status(&context, {}, &response));
    REQUIRE_OK(status);
    return response;
  }

 private:
  std::unique_ptr<EdgeDaemon> daemon_;
  std::unique_ptr<v1::Edge::Stub> stub_;
};

// A request on a thread of its own, which ends with Join.
class BackgroundAsk {
 public:
  // `reached` says of each event whether Await may return.
  BackgroundAsk(TestDaemon* edge, const v1::GenerateRequest& request,
                std::function<bool(const v1::GenerateResponse&)> reached)
      : thread_([this, edge, request, reached = std::move(reached)] {
          answer_ = edge->Ask(
              request, [&](const v1::GenerateResponse& response, grpc::ClientContext* context) {
                if (reached(response) && !reached_.HasBeenNotified()) reached_.Notify();
                if (cancelled_.HasBeenNotified()) context->TryCancel();
              });
        }) {}
  ~BackgroundAsk() {
    if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
    Join();
  }
  void Await() { reached_.WaitForNotification(); }
  void CancelAtNextEvent() { cancelled_.Notify(); }
  const Answer& Join() {
    if (thread_.joinable()) thread_.join();
    return answer_;
  }

 private:
  Answer answer_;
  absl::Notification reached_;
  absl::Notification cancelled_;
  std::thread thread_;  // last: uses the others
};

// A daemon without a server on a free port, its contexts in `folder`.
inline EdgeConfig LocalConfig(const TempFolder& folder) {
  EdgeConfig config;
  config.listen = "127.0.0.1:0";
  config.model = TestModel();
  config.data_dir = folder.path();
  config.session.kv_budget_bytes = uint64_t{256} << 20;
  return config;
}

inline v1::GenerateRequest Question(const std::string& context, const std::string& question,
                                    uint32_t max_tokens = 8) {
  v1::GenerateRequest request;
  request.set_context(context);
  request.set_question(question);
  request.set_max_tokens(max_tokens);
  return request;
}

inline v1::AddContextRequest Document(const std::string& name, const std::string& text) {
  v1::AddContextRequest request;
  request.set_name(name);
  request.set_text(text);
  return request;
}

// Prose of `sentences` sentences that differ.
inline std::string Prose(int sentences) {
  const char* const things[] = {"lighthouse", "engine",  "garden", "ledger",
                                "violin",     "harbour", "compass"};
  const char* const acts[] = {"was repaired by", "was painted for", "belonged to",
                              "was described to", "was sold by"};
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    text += "In the year " + std::to_string(1700 + 7 * i % 290) + " the " + things[i % 7] + " " +
            acts[i % 5] + " keeper number " + std::to_string(i * 13 % 97) + ". ";
  }
  return text;
}

}  // namespace sparkv::testing

// Requests from the queue to the last token: resolve, wait, load or reuse, query prefill, decode.
// Chat sessions' turns follow each other as generated ids.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/cancel.h"
#include "common/llm/decoder.h"
#include "common/llm/model.h"
#include "edge/context_load.h"
#include "edge/contexts.h"
#include "edge/engine_thread.h"
#include "edge/kv_residency.h"
#include "edge/policy_name.h"
#include "sparkv/v1/edge.pb.h"

namespace sparkv {

struct SessionOptions {
  v1::Policy policy = v1::POLICY_SPARKV;  // of requests that name none
  uint32_t level = 0;                     // 0: the codec's default
  uint32_t slo_ms = 0;                    // of requests that name none; 0: none
  uint32_t max_queue = 16;
  uint64_t kv_budget_bytes = uint64_t{1} << 30;
  KvDtype kv_dtype = KvDtype::kF16;
  DecoderOptions decoder;
  LinkPrior link;  // of the link to the server, until loads have measured it
};


// Thread-safe. Each call blocks its thread until the request has ended; the work is done by the
// engine thread.
class Sessions {
 public:
  // Writes one message to the client; false: the client is gone. Asked for in between: whether the
  // client is still there.
  struct Client {
    std::function<bool(const v1::GenerateResponse&)> write;
    std::function<bool()> alive;
  };

  static absl::StatusOr<std::unique_ptr<Sessions>> Create(std::shared_ptr<const Model> model,
                                                          Contexts* contexts,
                                                          const SessionOptions& options);
  ~Sessions();

  // Codes as in edge.proto. A client that goes away ends the work within a decode step or a prefill
  // step.
  absl::Status Generate(const v1::GenerateRequest& request, const Client& client);
  absl::Status Load(const v1::LoadRequest& request, const Client& client);

  // Cancels what runs and waits; later calls are Unavailable.
  void Shutdown() { engine_.Shutdown(); }

  bool Loaded(const Digest& id) const;
  void Forget(const Digest& id);  // its KV memory
  // The KV, queue and policy fields.
  void FillStatus(v1::StatusResponse* status) const;

 private:
  // What was said in one chat after its context.
  struct Chat {
    std::string name;
    std::string context;         // hex id, empty: none
    std::vector<int32_t> turns;  // generated ids included
  };
  struct Work;

  Sessions(std::shared_ptr<const Model> model, Contexts* contexts, const SessionOptions& options,
           std::shared_ptr<KvPagePool> pool);
  // Whether what is held serves the request. What was computed or lossless (level 0) always does.
  bool GoodEnough(const HeldKv* held, const Work& work) const;
  absl::Status Enqueue(std::shared_ptr<Work> work, const Client& client);
  // The members below run on the engine thread.
  absl::Status Run(Work* work);
  absl::Status Fill(Work* work, KvCache* cache, std::vector<float>* logits);
  absl::Status LoadInto(Work* work, KvCache* cache, std::vector<float>* logits);
  absl::Status Answer(Work* work, KvCache* cache, std::vector<float>* logits);
  absl::StatusOr<Chat> FindChat(const Work& work) const;
  void SaveChat(Work* work, std::unique_ptr<KvCache> cache);

  const std::shared_ptr<const Model> model_;
  Contexts* const contexts_;
  const SessionOptions options_;
  KvResidency kv_;
  std::unique_ptr<Decoder> decoder_;       // made and used on the engine thread
  std::unique_ptr<ContextLoader> loader_;  // likewise
  mutable absl::Mutex chats_mutex_;
  std::list<Chat> chats_ ABSL_GUARDED_BY(chats_mutex_);  // most recently used first
  EngineThread engine_;                                  // last: ends before what it uses
};

}  // namespace sparkv

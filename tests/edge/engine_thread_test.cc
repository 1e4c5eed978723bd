#include "edge/engine_thread.h"

#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

// What happened to the jobs, in order.
class Log {
 public:
  void Add(std::string line) {
    absl::MutexLock lock(&mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> lines_;
};

// A job that holds the engine until released.
struct Blocker {
  absl::Notification started;
  absl::Notification release;
  CancelToken cancel;

  EngineThread::Job Job() {
    return {.run =
                [this] {
                  started.Notify();
                  release.WaitForNotification();
                },
            .dropped = [](absl::Status) { FAIL("the running job is never dropped"); },
            .cancel = cancel};
  }
};

EngineThread::Job Named(Log* log, const std::string& name, CancelToken cancel = {},
                        std::function<void()> then = nullptr) {
  return {
      .run =
          [=] {
            log->Add("run " + name);
            if (then) then();
          },
      .dropped = [=](absl::Status status) { log->Add("drop " + name + " " + status.ToString()); },
      .position = [=](uint32_t n) { log->Add(name + "@" + std::to_string(n)); },
      .cancel = cancel};
}

TEST_CASE("jobs run in order and report their positions as they fall") {
  Log log;
  absl::Notification done;
  Blocker blocker;  // outlives the thread that waits in it
  EngineThread engine(8);
  REQUIRE(engine.Post(blocker.Job()).ok());
  blocker.started.WaitForNotification();
  REQUIRE(engine.Post(Named(&log, "a")).ok());
  REQUIRE(engine.Post(Named(&log, "b", {}, [&] { done.Notify(); })).ok());
  CHECK(engine.queue_length() == 3);
  blocker.release.Notify();
  done.WaitForNotification();
  CHECK(log.lines() == std::vector<std::string>{"a@1", "b@2", "b@1", "run a", "run b"});
}

TEST_CASE("a full queue refuses and keeps what it has") {
  Log log;
  absl::Notification done;
  Blocker blocker;  // outlives the thread that waits in it
  EngineThread engine(1);
  REQUIRE(engine.Post(blocker.Job()).ok());
  blocker.started.WaitForNotification();
  REQUIRE(engine.Post(Named(&log, "a", {}, [&] { done.Notify(); })).ok());
  const absl::Status refused = engine.Post(Named(&log, "b"));
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK(refused.message() == "the queue is full: 1 requests wait, max_queue is 1; try again later");
  blocker.release.Notify();
  done.WaitForNotification();
  CHECK(log.lines() == std::vector<std::string>{"a@1", "run a"});
}

TEST_CASE("a queue of none still serves one at a time") {
  Log log;
  Blocker blocker;  // outlives the thread that waits in it
  EngineThread engine(0);
  REQUIRE(engine.Post(blocker.Job()).ok());
  blocker.started.WaitForNotification();
  CHECK(engine.Post(Named(&log, "a")).code() == absl::StatusCode::kResourceExhausted);
  blocker.release.Notify();
}

TEST_CASE("a cancelled waiting job leaves at the kick and the rest move up") {
  Log log;
  absl::Notification done;
  Blocker blocker;  // outlives the thread that waits in it
  EngineThread engine(8);
  REQUIRE(engine.Post(blocker.Job()).ok());
  blocker.started.WaitForNotification();
  CancelToken cancel;
  REQUIRE(engine.Post(Named(&log, "a", cancel)).ok());
  REQUIRE(engine.Post(Named(&log, "b", {}, [&] { done.Notify(); })).ok());
  cancel.Cancel();
  engine.Kick();
  CHECK(log.lines() ==
        std::vector<std::string>{"a@1", "b@2", "b@1", "drop a CANCELLED: cancelled by the caller"});
  CHECK(engine.queue_length() == 2);
  blocker.release.Notify();
  done.WaitForNotification();
  CHECK(log.lines().back() == "run b");
}

TEST_CASE("shutdown cancels the running job and drops the waiting ones") {
  Log log;
  Blocker blocker;  // outlives the thread that waits in it
  EngineThread engine(8);
  REQUIRE(engine.Post(blocker.Job()).ok());
  blocker.started.WaitForNotification();
  REQUIRE(engine.Post(Named(&log, "a")).ok());
  std::thread releaser([&] {
    while (!blocker.cancel.cancelled()) std::this_thread::yield();
    blocker.release.Notify();
  });
  engine.Shutdown();
  releaser.join();
  CHECK(log.lines() ==
        std::vector<std::string>{"a@1", "drop a UNAVAILABLE: the daemon is shutting down"});
  CHECK(engine.Post(Named(&log, "b")).code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sparkv

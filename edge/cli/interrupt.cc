#include "edge/cli/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "edge/cli/exit_code.h"

namespace sparkv::cli {
namespace {

constexpr absl::Duration kForcedAfter = absl::Milliseconds(170);

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR2);  // wakes the watcher at the end
  return set;
}

}  // namespace

struct InterruptWatch::State {
  absl::Mutex mutex;
  grpc::ClientContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::atomic<bool> interrupted{false};
  std::function<void()> last_wish;
  std::thread thread;

  void Run() {
    const sigset_t set = Signals();
    int signal_number = 0;
    while (sigwait(&set, &signal_number) == 0) {
      absl::MutexLock lock(&mutex);
      if (ended) return;
      if (signal_number == SIGUSR2) continue;
      interrupted = true;
      if (context != nullptr) context->TryCancel();
      // Main returns by itself once the RPC has ended; if it is held up, the user has waited long
      // enough.
      mutex.AwaitWithTimeout(absl::Condition(&ended), kForcedAfter);
      if (ended) return;
      if (last_wish) last_wish();
      _exit(kExitInterrupted);
    }
  }
};

InterruptWatch::InterruptWatch(std::function<void()> last_wish) : state_(new State) {
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  state_->last_wish = std::move(last_wish);
  state_->thread = std::thread([this] { state_->Run(); });
}

InterruptWatch::~InterruptWatch() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->ended = true;
  }
  pthread_kill(state_->thread.native_handle(), SIGUSR2);
  state_->thread.join();
  delete state_;
}

bool InterruptWatch::interrupted() const { return state_->interrupted; }

InterruptWatch::Scope::Scope(InterruptWatch* watch, grpc::ClientContext* context) : watch_(watch) {
  absl::MutexLock lock(&watch_->state_->mutex);
  watch_->state_->context = context;
  if (watch_->state_->interrupted) context->TryCancel();
}

InterruptWatch::Scope::~Scope() {
  absl::MutexLock lock(&watch_->state_->mutex);
  watch_->state_->context = nullptr;
}

}  // namespace sparkv::cli

// Ctrl-C: the running RPC is cancelled first, and the process ends within 200 ms whatever happens.
#pragma once

#include <grpcpp/client_context.h>

#include <functional>

namespace sparkv::cli {

// Watches SIGINT and SIGTERM from a thread of its own. One at a time in a process; made before
// other threads, which then inherit the blocked signals.
class InterruptWatch {
 public:
  // `last_wish` runs just before the process is ended by force.
  explicit InterruptWatch(std::function<void()> last_wish = nullptr);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool interrupted() const;

  // While alive, an interrupt cancels `context`.
  class Scope {
   public:
    Scope(InterruptWatch* watch, grpc::ClientContext* context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    InterruptWatch* const watch_;
  };

 private:
  struct State;
  State* state_;
};

}  // namespace sparkv::cli

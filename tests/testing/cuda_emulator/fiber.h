// A call stack that is switched to and from by hand. AddressSanitizer and ThreadSanitizer are told
// of every switch.
#pragma once

#include <cstddef>

// swapcontext asks the kernel about signals each time, which takes longer than what most emulated
// threads do between two switches. So x86-64 has a switch of its own.
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace sparkv::testing {

class Fiber {
 public:
  // The calling thread's own stack.
  Fiber();
  // A stack of its own, above a page that must not be touched.
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to this fiber calls entry(argument), which must never return. Whatever the
  // fiber was in before is forgotten, without destructors. Only for a fiber with a stack of its
  // own, and not from it.
  void Start(void (*entry)(void*), void* argument);

  // From the running fiber to another; returns when something switches back. Also out of a signal
  // handler, which then never ends. leaves_for_good: `from` is not switched to again before a
  // Start.
  static void Switch(Fiber* from, Fiber* to, bool leaves_for_good = false);

 private:
  static void Enter();

#ifdef __x86_64__
  void* stack_pointer_ = nullptr;  // while it doesn't run; its registers are above
#else
  ucontext_t context_{};
#endif
  void* mapping_ = nullptr;  // the page and the stack; nullptr: the thread's own
  size_t mapping_bytes_ = 0;
  const void* stack_ = nullptr;  // its lowest address
  size_t stack_bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;    // AddressSanitizer's
  void* thread_state_ = nullptr;  // ThreadSanitizer's
};

}  // namespace sparkv::testing

#include "tests/testing/cuda_emulator/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/testing/cuda_emulator/sanitizers.h"

#ifdef SPARKV_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SPARKV_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

#ifdef __x86_64__
// Saves the registers that a call must keep and the stack pointer, then goes on where `to` was
// saved.
extern "C" void sparkv_switch_stack(void** from, void* to);
asm(R"(
.text
.type sparkv_switch_stack, @function
sparkv_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sparkv_switch_stack, . - sparkv_switch_stack
)");
#endif

namespace sparkv::testing {
namespace {

Fiber* entering = nullptr;  // the fiber that was switched to last

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

Fiber::Fiber() {
  pthread_attr_t attributes;
  void* lowest = nullptr;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0 ||
      pthread_attr_getstack(&attributes, &lowest, &stack_bytes_) != 0) {
    Die("the thread's stack");
  }
  pthread_attr_destroy(&attributes);
  stack_ = lowest;
#ifdef SPARKV_THREAD_SANITIZER
  thread_state_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  stack_bytes_ = (stack_bytes + page - 1) / page * page;
  mapping_bytes_ = stack_bytes_ + page;
  mapping_ =
      mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) Die("a fiber's stack");
  if (mprotect(mapping_, page, PROT_NONE) != 0) Die("the page below a fiber's stack");
  stack_ = static_cast<uint8_t*>(mapping_) + page;
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#ifdef SPARKV_THREAD_SANITIZER
  if (thread_state_ != nullptr) __tsan_destroy_fiber(thread_state_);
#endif
#ifdef SPARKV_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
  munmap(mapping_, mapping_bytes_);
}

void Fiber::Start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
#ifdef SPARKV_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack_, stack_bytes_);  // frames that were left without returning
  fake_stack_ = nullptr;
#endif
#ifdef SPARKV_THREAD_SANITIZER
  if (thread_state_ != nullptr) __tsan_destroy_fiber(thread_state_);
  thread_state_ = __tsan_create_fiber(0);
#endif
#ifdef __x86_64__
  // As if it had been switched from just before the first instruction of Enter: six registers, the
  // address of Enter and, where a call would have left it, that of nobody to return to.
  auto* const top = reinterpret_cast<uintptr_t*>(static_cast<uint8_t*>(mapping_) + mapping_bytes_);
  std::fill(top - 8, top, uintptr_t{0});
  top[-2] = reinterpret_cast<uintptr_t>(&Fiber::Enter);
  stack_pointer_ = top - 8;
#else
  if (getcontext(&context_) != 0) Die("getcontext");
  context_.uc_stack.ss_sp = const_cast<void*>(stack_);
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::Enter, 0);
#endif
}

void Fiber::Enter() {
  Fiber* const self = entering;
#ifdef SPARKV_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  self->entry_(self->argument_);
  std::fputs("a fiber's entry returned\n", stderr);
  std::abort();
}

void Fiber::Switch(Fiber* from, Fiber* to, [[maybe_unused]] bool leaves_for_good) {
  entering = to;
#ifdef SPARKV_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(leaves_for_good ? nullptr : &from->fake_stack_, to->stack_,
                                 to->stack_bytes_);
#endif
#ifdef SPARKV_THREAD_SANITIZER
  __tsan_switch_to_fiber(to->thread_state_, 0);
#endif
#ifdef __x86_64__
  sparkv_switch_stack(&from->stack_pointer_, to->stack_pointer_);
#else
  if (swapcontext(&from->context_, &to->context_) != 0) Die("swapcontext");
#endif
#ifdef SPARKV_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(from->fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace sparkv::testing

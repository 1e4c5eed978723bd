// Counts what a thread allocates. To be included in one file of an executable: it replaces the
// global operator new.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace sparkv::testing {
// Bytes that this thread asked for since the counter was set to 0.
inline thread_local size_t allocated_bytes = 0;
}  // namespace sparkv::testing

// Sanitizers bring their own operators; under them the counter stays 0 and nothing is measured.
#if defined(__has_feature)
#define SPARKV_HAS_FEATURE(x) __has_feature(x)
#else
#define SPARKV_HAS_FEATURE(x) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !SPARKV_HAS_FEATURE(address_sanitizer) && !SPARKV_HAS_FEATURE(thread_sanitizer)
// Not inlined: the compiler would see free() on what new returned and warn.
__attribute__((noinline)) void* operator new(size_t n) {
  sparkv::testing::allocated_bytes += n;
  void* p = std::malloc(n == 0 ? 1 : n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

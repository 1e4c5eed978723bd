// SPARKV_ADDRESS_SANITIZER, SPARKV_THREAD_SANITIZER: defined when the compiler instruments for
// them.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPARKV_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define SPARKV_THREAD_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SPARKV_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__)
#define SPARKV_THREAD_SANITIZER
#endif

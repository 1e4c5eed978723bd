// The only file that includes Catch2: version 2 (Debian 12) and 3 (Ubuntu 24.04) differ in headers.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include "absl/status/status.h"

// REQUIRE that a Status or StatusOr is ok, printing its message otherwise.
#define REQUIRE_OK(expr)                                 \
  do {                                                   \
    const auto& sparkv_result_ = (expr);                 \
    INFO(::sparkv::testing::StatusText(sparkv_result_)); \
    REQUIRE(sparkv_result_.ok());                        \
  } while (false)

namespace sparkv::testing {
inline std::string StatusText(const absl::Status& s) { return s.ToString(); }
template <typename T>
std::string StatusText(const T& s) {
  return s.status().ToString();
}
}  // namespace sparkv::testing

// SKIP(reason): Catch2 3.3+ has it; with 2.x the case prints a line that ctest turns into
// "Skipped".
#ifndef SKIP
#define SKIP(reason)                                             \
  do {                                                           \
    std::cout << "SPARKV_TEST_SKIPPED: " << reason << std::endl; \
    SUCCEED("skipped");                                          \
    return;                                                      \
  } while (false)
#endif

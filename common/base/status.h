// RETURN_IF_ERROR and ASSIGN_OR_RETURN over absl::Status, for Abseil releases that lack them.
// One meaning per code in this project:
//   InvalidArgument     the caller's value is out of its documented range; retrying cannot help
//   NotFound            the named thing does not exist
//   FailedPrecondition  valid input that does not fit this state (wrong model, codec, version)
//   DataLoss            bytes from disk or network fail a checksum or a format rule
//   ResourceExhausted   a documented budget or queue is full
//   Unavailable         the peer cannot be reached now; retrying may help
//   Cancelled           the caller gave up
//   Unimplemented       a valid request that this build does not support
//   Internal            a broken invariant of ours
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SPARKV_CONCAT_INNER(a, b) a##b
#define SPARKV_CONCAT(a, b) SPARKV_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                        \
  do {                                               \
    ::absl::Status sparkv_status_ = (expr);          \
    if (!sparkv_status_.ok()) return sparkv_status_; \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(SPARKV_CONCAT(sparkv_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) return tmp.status();         \
  lhs = *std::move(tmp)

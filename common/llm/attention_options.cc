#include "common/llm/attention_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sparkv {
namespace {

constexpr std::string_view kSparge = "sparge";

}  // namespace

std::string AttentionOptions::ToString() const {
  return sparse ? absl::StrCat("sparge:", tau) : "dense";
}

absl::StatusOr<AttentionOptions> ParseAttention(std::string_view text) {
  AttentionOptions options;
  if (text == "dense") return options;
  options.sparse = true;
  if (text == kSparge) return options;
  if (text.starts_with(kSparge) && text[kSparge.size()] == ':') {
    const std::string_view tau = text.substr(kSparge.size() + 1);
    if (absl::SimpleAtof(absl::string_view(tau.data(), tau.size()), &options.tau) &&
        options.tau > 0 && options.tau <= 1) {
      return options;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("attention: got ", absl::string_view(text.data(), text.size()),
                   ", allowed: dense, sparge, sparge:TAU with TAU above 0 and at most 1"));
}

}  // namespace sparkv

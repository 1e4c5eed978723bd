#include "common/llm/attention_options.h"

#include <string>

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("attention settings are read and written") {
  const auto dense = ParseAttention("dense");
  REQUIRE(dense.ok());
  CHECK_FALSE(dense->sparse);
  CHECK(dense->ToString() == "dense");
  const auto standard = ParseAttention("sparge");
  REQUIRE(standard.ok());
  CHECK(standard->sparse);
  CHECK(standard->tau == AttentionOptions{}.tau);
  CHECK(ParseAttention(standard->ToString()).value() == *standard);
  for (const char* tau : {"0.5", "1", "0.975", "1e-3"}) {
    const auto options = ParseAttention(std::string("sparge:") + tau);
    REQUIRE(options.ok());
    CHECK(options->sparse);
    CHECK(options->tau == std::stof(tau));
    CHECK(ParseAttention(options->ToString()).value() == *options);
  }
}

TEST_CASE("attention settings that make no sense are refused with what is allowed") {
  for (const char* text : {"", "Dense", "dense:0.5", "sparge:", "sparge:0", "sparge:1.1",
                           "sparge:nan", "sparge:-0.5", "sparge:0.9x", "sparge0.9", "sparg"}) {
    INFO(text);
    const absl::Status status = ParseAttention(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    CHECK(message.find(std::string("got ") + text + ", allowed: dense, sparge") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace sparkv

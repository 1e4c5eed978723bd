#include "edge/stop_strings.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

StopStrings Make(std::vector<std::string> stops) {
  absl::StatusOr<StopStrings> made = StopStrings::Create(std::move(stops));
  REQUIRE(made.ok());
  return *std::move(made);
}

TEST_CASE("without stop strings text passes at once") {
  StopStrings stops = Make({});
  CHECK(stops.Push("abc") == "abc");
  CHECK(stops.Flush() == "");
}

TEST_CASE("a stop string that spans three pieces is found and cut out") {
  StopStrings stops = Make({"END."});
  CHECK(stops.Push("some E") == "some ");
  CHECK(stops.Push("N") == "");
  CHECK(stops.Push("D. more") == "");
  CHECK(stops.stopped());
  CHECK(stops.Push("x") == "");
  CHECK(stops.Flush() == "");
}

TEST_CASE("text that only began like a stop string comes out in order") {
  StopStrings stops = Make({"END."});
  CHECK(stops.Push("an EN") == "an ");
  CHECK(stops.Push("Dless E") == "ENDless ");
  CHECK(stops.Push("E") == "E");
  CHECK(stops.Flush() == "E");
  CHECK_FALSE(stops.stopped());
}

TEST_CASE("the earliest of several stop strings wins, whatever their order") {
  StopStrings stops = Make({"later", "\n\n"});
  CHECK(stops.Push("a\n\nb later") == "a");
  CHECK(stops.stopped());
}

TEST_CASE("a repeated beginning is held back as far as needed") {
  StopStrings stops = Make({"aab"});
  CHECK(stops.Push("aaa") == "a");  // "aa" may still become "aab"
  CHECK(stops.Push("b") == "");
  CHECK(stops.stopped());
}

TEST_CASE("a held-back piece never splits a character") {
  StopStrings stops = Make({"\xBF!"});  // begins with a continuation byte
  CHECK(stops.Push("a\xC3\xBF") == "a");
  CHECK(stops.Push("b") ==
        "\xC3\xBF"
        "b");
}

TEST_CASE("every way to cut a text into pieces gives the same answer") {
  const std::string text = "xxSTOxSTSTOPyy";
  for (unsigned cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
    StopStrings stops = Make({"STOP", "Py"});
    std::string out;
    std::string piece;
    for (size_t i = 0; i < text.size(); ++i) {
      piece += text[i];
      if (i + 1 == text.size() || (cuts >> i & 1)) {
        out += stops.Push(piece);
        piece.clear();
      }
    }
    out += stops.Flush();
    if (out != "xxSTOxST") FAIL("cuts " << cuts << " gave " << out);
  }
}

TEST_CASE("bad stop strings are refused") {
  CHECK(StopStrings::Create({""}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(StopStrings::Create({std::string(257, 'a')}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(StopStrings::Create({std::string(256, 'a')}).ok());
  CHECK(StopStrings::Create(std::vector<std::string>(17, "a")).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sparkv

#include "server/fetch_stream.h"

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

using Action = FetchStream::Action;

constexpr FetchShape kShape{3, 2, 2};
// Frames of 10 bytes keep the cases readable.
constexpr FetchLimits kLimits{
    .frame_bytes = 10, .max_window_bytes = 1000, .max_message_items = 8, .max_waiting_items = 20};

ItemKey I(uint32_t column, uint32_t layer = 0, uint32_t plane = 0) {
  return {column, layer, plane};
}

// What Next says, as text: "load 0.0.0", "frame 0.0.0 @0+10", "frame 0.0.0 @10+5 last", "wait" ...
std::string Text(const FetchStream::Step& s) {
  const std::string item = absl::StrCat(s.item.column, ".", s.item.layer, ".", s.item.plane);
  switch (s.action) {
    case Action::kWait:
      return "wait";
    case Action::kLoad:
      return "load " + item;
    case Action::kFrame:
      return absl::StrCat("frame ", item, " @", s.offset, "+", s.data.size(),
                          s.last ? " last" : "");
    case Action::kFailed:
      return absl::StrCat("failed ", item);
    case Action::kCancelled:
      return absl::StrCat("cancelled ", item);
    case Action::kDone:
      return "done";
  }
  return "?";
}
std::string Next(FetchStream* s) { return Text(s->Next()); }

TEST_CASE("Items go out one after the other, in order, in frames without gaps") {
  FetchStream s(kShape, 1000, kLimits);
  CHECK(Next(&s) == "wait");
  const ItemKey order[] = {I(1), I(0, 1, 1)};
  REQUIRE_OK(s.Order(order, false));
  CHECK(Next(&s) == "load 1.0.0");
  CHECK(Next(&s) == "wait");  // until it is loaded
  s.Loaded(std::string("abcdefghijklmnopqrstuvwxy"));
  const auto first = s.Next();
  CHECK(Text(first) == "frame 1.0.0 @0+10");
  CHECK(first.data == "abcdefghij");
  CHECK(Next(&s) == "frame 1.0.0 @10+10");
  const auto last = s.Next();
  CHECK(Text(last) == "frame 1.0.0 @20+5 last");
  CHECK(last.data == "uvwxy");
  CHECK(Next(&s) == "load 0.1.1");
  s.Loaded(std::string(10, 'x'));
  CHECK(Next(&s) == "frame 0.1.1 @0+10 last");  // exactly one frame: no empty one behind it
  CHECK(Next(&s) == "wait");
  s.HalfClose();
  CHECK(Next(&s) == "done");
}

TEST_CASE("Never more unacknowledged bytes than the window, and no tiny frames") {
  FetchStream s(kShape, 25, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0)}, false));
  CHECK(Next(&s) == "load 0.0.0");
  s.Loaded(std::string(40, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  CHECK(Next(&s) == "frame 0.0.0 @10+10");
  CHECK(Next(&s) == "wait");  // 5 are left, a frame is 10
  CHECK(s.blocked_by_window());
  REQUIRE_OK(s.Window(4, 0));
  CHECK(Next(&s) == "wait");
  REQUIRE_OK(s.Window(1, 0));
  CHECK_FALSE(s.blocked_by_window());
  CHECK(Next(&s) == "frame 0.0.0 @20+10");
  CHECK(s.outstanding_bytes() == 25);
  REQUIRE_OK(s.Window(0, 35));  // a wider window alone lets the rest out
  CHECK(Next(&s) == "frame 0.0.0 @30+10 last");
  // A window below a frame still moves.
  REQUIRE_OK(s.Window(35, 3));
  REQUIRE_OK(s.Order(std::vector{I(1)}, false));
  CHECK(Next(&s) == "load 1.0.0");
  s.Loaded(std::string(5, 'x'));
  CHECK(Next(&s) == "frame 1.0.0 @0+3");
  CHECK(Next(&s) == "wait");
  REQUIRE_OK(s.Window(3, 0));
  CHECK(Next(&s) == "frame 1.0.0 @3+2 last");
}

TEST_CASE("A window of zero leaves it unchanged, and wrong grants are refused") {
  FetchStream s(kShape, 10, kLimits);
  CHECK(absl::IsInvalidArgument(s.Window(1, 0)));
  CHECK(absl::IsInvalidArgument(s.Window(0, 1001)));
  REQUIRE_OK(s.Window(0, 0));
  REQUIRE_OK(s.Order(std::vector{I(0)}, false));
  s.Next();
  s.Loaded(std::string(20, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  CHECK(Next(&s) == "wait");
  CHECK(absl::IsInvalidArgument(s.Window(11, 500)));
  CHECK(Next(&s) == "wait");  // the refused window was not applied
  REQUIRE_OK(s.Window(10, 0));
  CHECK(Next(&s) == "frame 0.0.0 @10+10 last");
}

TEST_CASE(
    "Duplicates are sent once while they wait or are being sent, again when ordered after that") {
  FetchStream s(kShape, 1000, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(0), I(1)}, false));
  REQUIRE_OK(s.Order(std::vector{I(1)}, false));
  CHECK(s.waiting() == 2);
  CHECK(Next(&s) == "load 0.0.0");
  REQUIRE_OK(s.Order(std::vector{I(0)}, false));  // being loaded
  s.Loaded(std::string(15, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  REQUIRE_OK(s.Order(std::vector{I(0)}, false));  // being sent
  CHECK(Next(&s) == "frame 0.0.0 @10+5 last");
  CHECK(Next(&s) == "load 1.0.0");
  s.Loaded(std::string(1, 'x'));
  CHECK(Next(&s) == "frame 1.0.0 @0+1 last");
  REQUIRE_OK(s.Order(std::vector{I(0)}, false));
  CHECK(Next(&s) == "load 0.0.0");
}

TEST_CASE("Replace forgets what is not begun and finishes the item being sent") {
  FetchStream s(kShape, 1000, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(1), I(2)}, false));
  CHECK(Next(&s) == "load 0.0.0");
  s.Loaded(std::string(15, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  REQUIRE_OK(s.Order(std::vector{I(2), I(0)}, true));
  CHECK(Next(&s) == "frame 0.0.0 @10+5 last");
  CHECK(Next(&s) == "load 2.0.0");
  s.Loaded(std::string(1, 'x'));
  CHECK(Next(&s) == "frame 2.0.0 @0+1 last");
  CHECK(Next(&s) == "wait");
  // Replacing with nothing while an item loads: it is still sent.
  REQUIRE_OK(s.Order(std::vector{I(1), I(2)}, false));
  CHECK(Next(&s) == "load 1.0.0");
  REQUIRE_OK(s.Order({}, true));
  s.Loaded(std::string(1, 'x'));
  CHECK(Next(&s) == "frame 1.0.0 @0+1 last");
  CHECK(Next(&s) == "wait");
}

TEST_CASE("Cancel drops a waiting item, and stops the one being sent") {
  FetchStream s(kShape, 1000, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(1), I(2)}, false));
  CHECK(Next(&s) == "load 0.0.0");
  s.Loaded(std::string(30, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  REQUIRE_OK(s.Cancel(std::vector{I(1), I(0), I(0), I(0, 1, 1)}));
  CHECK(Next(&s) == "cancelled 0.0.0");
  CHECK(Next(&s) == "cancelled 1.0.0");
  CHECK(Next(&s) == "load 2.0.0");
  // While it loads: answered when the bytes come, and none of them is sent.
  REQUIRE_OK(s.Cancel(std::vector{I(2)}));
  CHECK(Next(&s) == "wait");
  s.Loaded(std::string(30, 'x'));
  CHECK(Next(&s) == "cancelled 2.0.0");
  CHECK(Next(&s) == "wait");
  CHECK(s.outstanding_bytes() == 10);
  // Sent or never ordered: nothing to say.
  REQUIRE_OK(s.Cancel(std::vector{I(0), I(1)}));
  CHECK(Next(&s) == "wait");
}

TEST_CASE("An item cancelled and ordered again is sent from its beginning, at its new place") {
  FetchStream s(kShape, 1000, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(1), I(2)}, false));
  REQUIRE_OK(s.Cancel(std::vector{I(0)}));
  REQUIRE_OK(s.Order(std::vector{I(0)}, false));
  CHECK(Next(&s) == "cancelled 0.0.0");
  CHECK(Next(&s) == "load 1.0.0");
  s.Loaded(std::string(30, 'x'));
  CHECK(Next(&s) == "frame 1.0.0 @0+10");
  REQUIRE_OK(s.Cancel(std::vector{I(1)}));
  REQUIRE_OK(s.Order(std::vector{I(1)}, false));  // before the answer went out
  CHECK(Next(&s) == "cancelled 1.0.0");
  CHECK(Next(&s) == "load 2.0.0");
  s.Loaded(std::string(1, 'x'));
  CHECK(Next(&s) == "frame 2.0.0 @0+1 last");
  CHECK(Next(&s) == "load 0.0.0");
  s.Loaded(std::string(1, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+1 last");
  CHECK(Next(&s) == "load 1.0.0");
  s.Loaded(std::string(12, 'x'));
  CHECK(Next(&s) == "frame 1.0.0 @0+10");
}

TEST_CASE("A cancel is answered while the window holds everything else back") {
  FetchStream s(kShape, 10, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(1)}, false));
  s.Next();
  s.Loaded(std::string(30, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  CHECK(Next(&s) == "wait");
  REQUIRE_OK(s.Cancel(std::vector{I(0)}));
  CHECK(Next(&s) == "cancelled 0.0.0");
  CHECK(Next(&s) == "load 1.0.0");
}

TEST_CASE("An unreadable item fails alone") {
  FetchStream s(kShape, 1000, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(1)}, false));
  s.Next();
  s.Loaded(absl::DataLossError("checksum"));
  const auto failed = s.Next();
  CHECK(Text(failed) == "failed 0.0.0");
  CHECK(absl::IsDataLoss(failed.error));
  CHECK(Next(&s) == "load 1.0.0");
  s.Loaded(std::string());
  CHECK(Next(&s) == "failed 1.0.0");
  // Cancelled while loading and failed: one answer.
  REQUIRE_OK(s.Order(std::vector{I(2)}, false));
  s.Next();
  REQUIRE_OK(s.Cancel(std::vector{I(2)}));
  s.Loaded(absl::DataLossError("checksum"));
  CHECK(Next(&s) == "cancelled 2.0.0");
  CHECK(Next(&s) == "wait");
}

TEST_CASE("Items outside the manifest and messages over the limits are refused whole") {
  FetchStream s(kShape, 1000, kLimits);
  for (const ItemKey bad : {I(3), I(0, 2), I(0, 0, 2), I(4294967295u)}) {
    CHECK(absl::IsInvalidArgument(s.Order(std::vector{I(0), bad}, true)));
    CHECK(absl::IsInvalidArgument(s.Cancel(std::vector{bad})));
  }
  CHECK(Next(&s) == "wait");
  CHECK(absl::IsInvalidArgument(s.Order(std::vector<ItemKey>(9, I(0)), false)));
  FetchStream wide({100, 100, 2}, 1000, kLimits);
  for (uint32_t i = 0; i < 5; ++i) {
    const std::vector<ItemKey> four = {I(i, 0), I(i, 1), I(i, 2), I(i, 3)};
    REQUIRE_OK(wide.Order(four, false));
  }
  CHECK(absl::IsResourceExhausted(wide.Order(std::vector{I(9)}, false)));
  CHECK(wide.waiting() == 20);
  REQUIRE_OK(wide.Order(std::vector{I(9)}, true));
  // Cancelling and ordering for ever without reading the answers is bounded too.
  absl::Status status;
  int rounds = 0;
  for (; rounds < 1000 && status.ok(); ++rounds) {
    status = wide.Cancel(std::vector{I(9)});
    if (status.ok()) status = wide.Order(std::vector{I(9)}, false);
  }
  CHECK(absl::IsResourceExhausted(status));
  CHECK(rounds < 30);
}

TEST_CASE("After a half-close everything ordered is sent, whatever the window") {
  FetchStream s(kShape, 10, kLimits);
  REQUIRE_OK(s.Order(std::vector{I(0), I(1)}, false));
  s.Next();
  s.Loaded(std::string(25, 'x'));
  CHECK(Next(&s) == "frame 0.0.0 @0+10");
  CHECK(Next(&s) == "wait");
  s.HalfClose();
  CHECK(Next(&s) == "frame 0.0.0 @10+10");
  CHECK(Next(&s) == "frame 0.0.0 @20+5 last");
  CHECK(Next(&s) == "load 1.0.0");
  CHECK(Next(&s) == "wait");
  s.Loaded(std::string(3, 'x'));
  CHECK(Next(&s) == "frame 1.0.0 @0+3 last");
  CHECK(Next(&s) == "done");
}

// Any interleaving: frames of an item come in order without gaps, the window holds, every ordered
// item ends in exactly one of last, failed and cancelled (or is replaced), and the stream drains.
TEST_CASE("Random interleavings keep the stream's promises") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const FetchShape shape{3, 3, 2};
    FetchStream s(shape, 1 + rng() % 40, kLimits);
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint64_t>
        progress;  // bytes of the item being sent
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint64_t> size;
    uint64_t outstanding = 0;
    uint64_t window_limit = 1000;
    bool loading = false;
    ItemKey load;
    const auto id = [](const ItemKey& k) { return std::tuple{k.column, k.layer, k.plane}; };
    const auto handle = [&](const FetchStream::Step& step) {
      switch (step.action) {
        case Action::kLoad:
          REQUIRE_FALSE(loading);
          loading = true;
          load = step.item;
          progress[id(step.item)] = 0;
          break;
        case Action::kFrame:
          REQUIRE(step.offset == progress[id(step.item)]);
          REQUIRE(step.data.size() >= 1);
          REQUIRE(step.data.size() <= 10);
          progress[id(step.item)] += step.data.size();
          outstanding += step.data.size();
          REQUIRE(outstanding == s.outstanding_bytes());
          REQUIRE(step.last == (progress[id(step.item)] == size[id(step.item)]));
          break;
        default:
          break;
      }
    };
    for (int i = 0; i < 200; ++i) {
      std::vector<ItemKey> items;
      for (uint32_t n = rng() % 5; n > 0; --n) {
        items.push_back({static_cast<uint32_t>(rng() % 3), static_cast<uint32_t>(rng() % 3),
                         static_cast<uint32_t>(rng() % 2)});
      }
      switch (rng() % 8) {
        case 0:
          REQUIRE_OK(s.Order(items, rng() % 3 == 0));
          break;
        case 1:
          REQUIRE_OK(s.Cancel(items));
          break;
        case 2: {
          const uint64_t consumed = rng() % (outstanding + 1);
          REQUIRE_OK(s.Window(consumed, rng() % 60));
          outstanding -= consumed;
          break;
        }
        case 3:
        case 4:
          if (loading) {
            loading = false;
            const size_t bytes = 1 + rng() % 35;
            size[id(load)] = bytes;
            s.Loaded(rng() % 10 == 0 ? absl::StatusOr<std::string>(absl::DataLossError("x"))
                                     : std::string(bytes, 'x'));
          }
          break;
        default: {
          const auto step = s.Next();
          REQUIRE(step.action != Action::kDone);
          handle(step);
          REQUIRE(outstanding <= window_limit);
        }
      }
    }
    s.HalfClose();
    for (int i = 0;; ++i) {
      REQUIRE(i < 10000);
      if (loading) {
        loading = false;
        size[id(load)] = 7;
        s.Loaded(std::string(7, 'x'));
      }
      const auto step = s.Next();
      if (step.action == Action::kDone) break;
      REQUIRE(step.action != Action::kWait);
      handle(step);
    }
    CHECK(s.waiting() == 0);
  }
}

}  // namespace
}  // namespace sparkv

#include "tests/testing/cuda_emulator/guarded_memory.h"

#include <cstring>

#include "tests/catch.h"

namespace sparkv::testing {

TEST_CASE("guarded memory lies at the edge that was asked for") {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}}) {
    CAPTURE(bytes);
    const GuardedMemory at_end("end", bytes),
        at_start("start", bytes, 1, GuardedMemory::Edge::kStart);
    CHECK((reinterpret_cast<uintptr_t>(at_end.data()) + bytes) % 4096 == 0);
    CHECK(reinterpret_cast<uintptr_t>(at_start.data()) % 4096 == 0);
    for (const GuardedMemory* memory : {&at_end, &at_start}) {
      CHECK(memory->size() == bytes);
      for (size_t i = 0; i < bytes; ++i) REQUIRE(memory->data()[i] == 0xCD);
      std::memset(memory->data(), 1, bytes);
      CHECK(memory->SlackIntact());
    }
  }
  const GuardedMemory aligned("aligned", 20, 16);
  CHECK(reinterpret_cast<uintptr_t>(aligned.data()) % 4096 == 4096 - 32);
}

TEST_CASE("guarded memory tells of writes beside it and names what lies at an address") {
  const GuardedMemory memory("some words", 100, 16);
  CHECK(GuardedMemory::Damaged().empty());
  for (const int at : {-1, 100}) {
    CAPTURE(at);
    const uint8_t before = memory.data()[at];
    memory.data()[at] = static_cast<uint8_t>(before + 1);
    CHECK_FALSE(memory.SlackIntact());
    CHECK(GuardedMemory::Damaged() == "some words");
    memory.data()[at] = before;
    CHECK(memory.SlackIntact());
  }
  CHECK(memory.Describe(memory.data() + 12) == "byte 12 of 'some words' (100 bytes)");
  CHECK(memory.Describe(memory.data() - 1) == "byte -1 of 'some words' (100 bytes)");
  CHECK(memory.Describe(memory.data() + 120) == "byte 120 of 'some words' (100 bytes)");
  CHECK(GuardedMemory::Near(&memory) == nullptr);
  for (const int at : {-1, 0, 99, 120, 4096})
    CHECK(GuardedMemory::Near(memory.data() + at) == &memory);
}

TEST_CASE("guarded memory used again starts as new") {
  { std::memset(GuardedMemory("first", 5000).data(), 7, 5000); }
  const GuardedMemory second("second", 6000);
  for (size_t i = 0; i < 6000; ++i) REQUIRE(second.data()[i] == 0xCD);
  CHECK(second.SlackIntact());
}

}  // namespace sparkv::testing

// What the emulator must do right, and each kind of mistake that it must find.
#include "tests/testing/cuda_emulator/cuda_emulator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda_device.h"
#include "tests/catch.h"
#include "tests/testing/cuda_emulator/guarded_memory.h"

namespace sparkv::testing {
namespace {

using kernels::emulated::kWholeWarp;
using kernels::emulated::Launch;

struct Order {
  const char* name;
  ThreadOrder order;
};
constexpr Order kOrders[] = {{"ascending", ThreadOrder::kAscending},
                             {"descending", ThreadOrder::kDescending},
                             {"shuffled", ThreadOrder::kShuffled}};

// Runs `thread` in one order; empty or the failure.
std::string Run(ThreadOrder order, dim3 grid, dim3 block, const std::function<void()>& thread,
                size_t shared_bytes = 0) {
  CudaEmulator emulator(order);
  const char* const failure = emulator.Launch(grid, block, shared_bytes, thread);
  return failure == nullptr ? std::string() : failure;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The numbers of the threads of a block of 256, the other way round, with or without the barrier.
template <bool kBarrier>
__global__ void ReverseKernel(const int* in, int* out) {
  SPARKV_SHARED(int, numbers, 256);
  numbers[threadIdx.x] = in[threadIdx.x];
  if constexpr (kBarrier) __syncthreads();
  out[threadIdx.x] = numbers[255 - threadIdx.x];
}

template <bool kBarrier>
__global__ void RotateInWarpKernel(int* out) {
  SPARKV_SHARED(int, numbers, 32);
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  if constexpr (kBarrier) __syncwarp();
  out[threadIdx.x] = numbers[(threadIdx.x + 1) % 32];
}

}  // namespace

TEST_CASE("emulated threads know their place") {
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    std::vector<int> visits(size_t{2} * 3 * 2 * 5 * 4 * 3);
    REQUIRE(Run(o.order, dim3(2, 3, 2), dim3(5, 4, 3), [&] {
              REQUIRE(gridDim.x == 2);
              REQUIRE(gridDim.y == 3);
              REQUIRE(gridDim.z == 2);
              REQUIRE(blockDim.x == 5);
              REQUIRE(blockDim.y == 4);
              REQUIRE(blockDim.z == 3);
              const unsigned block = (blockIdx.z * 3 + blockIdx.y) * 2 + blockIdx.x;
              ++visits.at(((block * 3 + threadIdx.z) * 4 + threadIdx.y) * 5 + threadIdx.x);
            }).empty());
    CHECK(std::count(visits.begin(), visits.end(), 1) == static_cast<long>(visits.size()));
  }
}

TEST_CASE("__syncthreads_or tells all threads whether one said so") {
  for (const Order& o : kOrders) {
    for (const unsigned who : {0u, 40u, 63u, 64u}) {  // the last of them is nobody
      std::vector<int> first(64, -1), second(64, -1);
      REQUIRE(Run(o.order, 1, 64, [&] {
                first[threadIdx.x] = __syncthreads_or(threadIdx.x == who);
                second[threadIdx.x] = __syncthreads_or(0);
              }).empty());
      CHECK(std::count(first.begin(), first.end(), who < 64 ? 1 : 0) == 64);
      CHECK(std::count(second.begin(), second.end(), 0) == 64);
    }
  }
}

TEST_CASE("emulated threads and blocks run in the order that was asked for") {
  std::vector<unsigned> ran;
  const auto note = [&] { ran.push_back(blockIdx.x * 64 + threadIdx.x); };
  std::vector<unsigned> ascending(256);
  std::iota(ascending.begin(), ascending.end(), 0u);
  REQUIRE(Run(ThreadOrder::kAscending, 4, 64, note).empty());
  CHECK(ran == ascending);
  ran.clear();
  REQUIRE(Run(ThreadOrder::kDescending, 4, 64, note).empty());
  CHECK(std::vector(ran.rbegin(), ran.rend()) == ascending);
  ran.clear();
  REQUIRE(Run(ThreadOrder::kShuffled, 4, 64, note).empty());
  CHECK(ran != ascending);
  CHECK(std::vector(ran.rbegin(), ran.rend()) != ascending);
  std::vector<unsigned> sorted = ran;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == ascending);
  std::vector<unsigned> again;
  again.swap(ran);
  REQUIRE(Run(ThreadOrder::kShuffled, 4, 64, note).empty());
  CHECK(ran == again);  // a seed gives one order
}

TEST_CASE("a missing barrier shows by the order of the threads, in a block and in a warp") {
  std::vector<int> in(256);
  std::iota(in.begin(), in.end(), 1000);
  const std::vector<int> reversed(in.rbegin(), in.rend());
  std::set<std::vector<int>> with, without, warp_with, warp_without;
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    CudaEmulator emulator(o.order);
    std::vector<int> out(256);
    REQUIRE(Launch(ReverseKernel<true>, 1, 256, 0, emulator.stream(), in.data(), out.data()) ==
            nullptr);
    CHECK(out == reversed);
    with.insert(out);
    REQUIRE(Launch(ReverseKernel<false>, 1, 256, 0, emulator.stream(), in.data(), out.data()) ==
            nullptr);
    CHECK(out != reversed);
    without.insert(out);
    out.resize(32);
    REQUIRE(Launch(RotateInWarpKernel<true>, 1, 32, 0, emulator.stream(), out.data()) == nullptr);
    warp_with.insert(out);
    REQUIRE(Launch(RotateInWarpKernel<false>, 1, 32, 0, emulator.stream(), out.data()) == nullptr);
    warp_without.insert(out);
  }
  CHECK(with.size() == 1);
  CHECK(without.size() == 3);
  CHECK(warp_with.size() == 1);
  CHECK(warp_without.size() == 3);
}

TEST_CASE(
    "shared memory is one for a block and has other contents in each order before it is written") {
  std::set<int> seen;
  for (const Order& o : kOrders) {
    int first = 0;
    REQUIRE(Run(o.order, 2, 64, [&] {
              SPARKV_SHARED(int, a, 4);
              SPARKV_SHARED(int, b, 4);
              REQUIRE(static_cast<void*>(a) != static_cast<void*>(b));
              if (threadIdx.x == 0) first = a[0];
              __syncthreads();
              if (threadIdx.x == 5) a[1] = 77;
              __syncthreads();
              REQUIRE(a[1] == 77);
              REQUIRE(a[2] == first);  // of another block nothing is left
            }).empty());
    seen.insert(first);
  }
  CHECK(seen.size() == 3);
}

TEST_CASE("dynamic shared memory is one for a block and ends where the launch says") {
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    const auto sum_after = [&](unsigned at) {
      unsigned sum = 0;
      const std::string failure = Run(
          o.order, 1, 64,
          [&] {
            SPARKV_DYNAMIC_SHARED(bytes);
            REQUIRE(reinterpret_cast<uintptr_t>(bytes) % 16 == 0);
            bytes[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
            if (threadIdx.x == 3) bytes[at] = 1;
            __syncthreads();
            if (threadIdx.x == 0) sum = std::accumulate(bytes, bytes + 64, 0u);
          },
          64);
      return failure.empty() ? std::to_string(sum) : failure;
    };
    CHECK(sum_after(3) == std::to_string(63 * 64 / 2 - 3 + 1));
    if (CudaEmulator::kFindsFaults) CHECK(Has(sum_after(64), "'dynamic shared memory'"));
  }
}

TEST_CASE("a barrier that some threads don't reach fails the launch") {
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    const std::string returned = Run(o.order, 2, 96, [] {
      if (threadIdx.x >= 40) __syncthreads();
    });
    CHECK(Has(returned, "__syncthreads"));
    CHECK(Has(returned, "returned"));
    const std::string elsewhere = Run(o.order, 1, 64, [] {
      if (threadIdx.x < 32) {
        __syncthreads();
      } else {
        // Half a warp at a barrier of the block, half at one of the warp.
        if (threadIdx.x % 2 == 0)
          __syncwarp();
        else
          __syncthreads();
      }
    });
    CHECK(Has(elsewhere, "no thread can go on"));
    CHECK(Has(elsewhere, "48 wait at __syncthreads (the first is (0,0,0))"));
    CHECK(Has(elsewhere, "16 wait at __syncwarp 0xffffffff (the first is (32,0,0))"));
    const std::string loops = Run(o.order, 1, 64, [] {
      for (unsigned i = 0; i < 1 + threadIdx.x / 32; ++i) __syncthreads();
    });
    CHECK(Has(loops, "__syncthreads"));
  }
}

TEST_CASE("warp intrinsics whose lanes don't meet fail the launch") {
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    CHECK(Has(Run(o.order, 1, 32,
                  [] {
                    if (threadIdx.x == 7)
                      __ballot_sync(kWholeWarp, 1);
                    else
                      __any_sync(kWholeWarp, 1);
                  }),
              "1 wait at __ballot_sync 0xffffffff (the first is (7,0,0))"));
    CHECK(Has(Run(o.order, 1, 32,
                  [] {
                    __ballot_sync(threadIdx.x == 0 ? 0xFFFFFFFF : 0xFFFFFFFE, 1);
                    __syncthreads();
                  }),
              "no thread can go on"));
    CHECK(Has(Run(o.order, 1, 32, [] { __syncwarp(2); }), "in which its own lane is not"));
    CHECK(Has(Run(o.order, 1, 32,
                  [] {
                    if (threadIdx.x < 16) __shfl_sync(0x0000FFFF, 1, 16);
                  }),
              "reads lane 16, which takes no part"));
  }
}

TEST_CASE("lanes that have returned are not waited for, and parts of a warp meet by themselves") {
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    std::vector<unsigned> ballots(40);
    REQUIRE(Run(o.order, 1, 40, [&] {
              if (threadIdx.x == 3 || threadIdx.x == 31) return;
              ballots[threadIdx.x] = __ballot_sync(kWholeWarp, threadIdx.x % 2 == 1);
            }).empty());
    CHECK(ballots[0] == (0xAAAAAAAAu & ~(1u << 3 | 1u << 31)));
    CHECK(ballots[30] == ballots[0]);
    CHECK(ballots[39] == 0xAA);
    REQUIRE(Run(o.order, 1, 32, [&] {
              const bool low = threadIdx.x < 16;
              ballots[threadIdx.x] =
                  low ? __ballot_sync(0x0000FFFF, 1) : __ballot_sync(0xFFFF0000, threadIdx.x == 20);
            }).empty());
    CHECK(ballots[5] == 0x0000FFFF);
    CHECK(ballots[25] == 1u << 20);
  }
}

TEST_CASE("shuffles give what CUDA's give") {
  for (const Order& o : kOrders) {
    for (const int width : {1, 2, 4, 8, 16, 32}) {
      CAPTURE(o.name, width);
      REQUIRE(Run(o.order, 1, 64, [&] {
                const int lane = static_cast<int>(threadIdx.x % 32), base = lane / width * width;
                const int mine = lane + 100;
                for (int n = 0; n < 40; ++n) {
                  REQUIRE(__shfl_sync(kWholeWarp, mine, n, width) == base + n % width + 100);
                  const int up = lane - n < base ? lane : lane - n;
                  REQUIRE(__shfl_up_sync(kWholeWarp, mine, static_cast<unsigned>(n), width) ==
                          up + 100);
                  const int down = lane + n >= base + width ? lane : lane + n;
                  REQUIRE(__shfl_down_sync(kWholeWarp, mine, static_cast<unsigned>(n), width) ==
                          down + 100);
                  // A group may read one before it, not one after it.
                  const int other = lane ^ n;
                  const int from = n >= 32 || other >= base + width ? lane : other;
                  REQUIRE(__shfl_xor_sync(kWholeWarp, mine, n, width) == from + 100);
                }
              }).empty());
    }
    REQUIRE(Run(o.order, 1, 32, [] {
              const double value = 0.1 * threadIdx.x;
              REQUIRE(__shfl_sync(kWholeWarp, value, 9) == 0.1 * 9);
              const uint8_t byte = static_cast<uint8_t>(200 + threadIdx.x);
              REQUIRE(__shfl_xor_sync(kWholeWarp, byte, 1) ==
                      static_cast<uint8_t>(200 + (threadIdx.x ^ 1)));
            }).empty());
  }
}

TEST_CASE("votes give what CUDA's give") {
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    for (unsigned set = 0; set < 40; ++set) {
      REQUIRE(Run(o.order, 1, 64, [&] {
                const bool holds = threadIdx.x % 32 < set;
                const unsigned bits = set >= 32 ? 0xFFFFFFFF : (1u << set) - 1;
                REQUIRE(__ballot_sync(kWholeWarp, holds) == bits);
                REQUIRE((__any_sync(kWholeWarp, holds) != 0) == (set > 0));
                REQUIRE((__all_sync(kWholeWarp, holds) != 0) == (set >= 32));
              }).empty());
    }
  }
}

TEST_CASE("bit intrinsics and atomics give what CUDA's give") {
  CHECK(__popc(0) == 0);
  CHECK(__popc(0x80000001) == 2);
  CHECK(__ffs(0) == 0);
  CHECK(__ffs(1) == 1);
  CHECK(__ffs(static_cast<int>(0x80000000)) == 32);
  CHECK(__clz(0) == 32);
  CHECK(__clz(1) == 31);
  CHECK(__clz(-1) == 0);
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    unsigned sum = 0, least = 1000, most = 0, all_or = 0, all_and = 0xFFFFFFFF, winners = 0,
             owner = 0;
    std::set<unsigned> before;
    float real = 0;
    REQUIRE(Run(o.order, 2, 64, [&] {
              const unsigned i = blockIdx.x * 64 + threadIdx.x;
              before.insert(atomicAdd(&sum, 2));
              atomicMin(&least, i + 5);
              atomicMax(&most, i);
              atomicOr(&all_or, i);
              atomicAnd(&all_and, ~i);
              atomicAdd(&real, 0.5f);
              if (atomicCAS(&owner, 0, i + 1) == 0) ++winners;
            }).empty());
    CHECK(sum == 256);
    CHECK(before.size() == 128);
    CHECK(least == 5);
    CHECK(most == 127);
    CHECK(all_or == 127);
    CHECK(all_and == ~127u);
    CHECK(real == 64);
    CHECK(winners == 1);
    CHECK(atomicExch(&owner, 9) != 9);
    CHECK(owner == 9);
  }
}

TEST_CASE("an access outside of global memory fails the launch and names it") {
  if (!CudaEmulator::kFindsFaults) SKIP("faults are not found under ThreadSanitizer");
  const GuardedMemory at_end("counts", 100),
      at_start("starts", 100, 1, GuardedMemory::Edge::kStart);
  unsigned sum = 0;
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    const auto touch = [&](const GuardedMemory& memory, int at, bool write) {
      return Run(o.order, 2, 64, [&memory, at, write, &sum] {
        if (blockIdx.x != 1 || threadIdx.x != 9) return;
        if (write)
          memory.data()[at] = 1;
        else
          sum += static_cast<const volatile uint8_t*>(memory.data())[at];
      });
    };
    for (const bool write : {false, true}) {
      CHECK(touch(at_end, 99, write).empty());
      CHECK(touch(at_start, 0, write).empty());
      CHECK(touch(at_end, 100, write) ==
            "block (1,0,0), thread (9,0,0): an access to byte 100 of 'counts' (100 bytes)");
      CHECK(touch(at_start, -1, write) ==
            "block (1,0,0), thread (9,0,0): an access to byte -1 of 'starts' (100 bytes)");
    }
    // A write in the same page is found when the launch ends.
    const uint8_t before = at_end.data()[-1];
    CHECK(touch(at_end, -1, true) == "a write outside of 'counts'");
    at_end.data()[-1] = before;
    const volatile uintptr_t near_null = 8;
    CHECK(Has(Run(o.order, 1, 32, [&] { sum += *reinterpret_cast<const uint8_t*>(near_null); }),
              "an access to address 8"));
    CHECK(touch(at_end, 5, true).empty());  // after all that, launches work
  }
}

TEST_CASE("an access outside of shared memory fails the launch") {
  if (!CudaEmulator::kFindsFaults) SKIP("faults are not found under ThreadSanitizer");
  int sum = 0;
  for (const Order& o : kOrders) {
    CAPTURE(o.name);
    const auto touch = [&](int at, bool write) {
      return Run(o.order, 1, 64, [at, write, &sum] {
        SPARKV_SHARED(int, numbers, 64);
        numbers[threadIdx.x] = 1;
        __syncthreads();
        if (threadIdx.x != 63) return;
        if (write)
          numbers[at] = 5;
        else
          sum += static_cast<const volatile int*>(numbers)[at];
      });
    };
    CHECK(touch(63, true).empty());
    CHECK(touch(63, false).empty());
    CHECK(Has(touch(64, true), "'shared memory'"));
    CHECK(Has(touch(-1, true), "'shared memory'"));
    // A read is a fault at the edge where the memory lies: the upper one, or in descending order
    // the lower one.
    CHECK(Has(touch(o.order == ThreadOrder::kDescending ? -1 : 64, false), "'shared memory'"));
  }
}

TEST_CASE("launches that no device takes fail, and the last threads of a warp may be missing") {
  int runs = 0;
  const auto count = [&] { ++runs; };
  for (const Order& o : kOrders) {
    CHECK_FALSE(Run(o.order, 1, 1025, count).empty());
    CHECK_FALSE(Run(o.order, 1, 0, count).empty());
    CHECK_FALSE(Run(o.order, 0, 32, count).empty());
    CHECK_FALSE(Run(o.order, dim3(1, 65536), 1, count).empty());
    CHECK_FALSE(Run(o.order, 1, 32, count, size_t{228} << 10).empty());
    CHECK(runs == 0);
    CHECK(Run(o.order, 1, 1024, count).empty());
    CHECK(runs == 1024);
    CHECK(Run(o.order, 1, 33, [&] {
            if (__all_sync(kWholeWarp, 1) != 0) ++runs;
            __syncthreads();
          }).empty());
    CHECK(runs == 1024 + 33);
    runs = 0;
  }
}

}  // namespace sparkv::testing

// Tensor cores, ldmatrix and cp.async in the emulator, against formulas of their own.
#include "tests/testing/cuda_emulator/warp_matrix.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda_mma.h"
#include "tests/catch.h"
#include "tests/testing/cuda_emulator/cuda_emulator.h"
#include "tests/testing/cuda_emulator/guarded_memory.h"

namespace sparkv::testing {
namespace {

namespace emulated = kernels::emulated;

constexpr ThreadOrder kOrders[] = {ThreadOrder::kAscending, ThreadOrder::kDescending,
                                   ThreadOrder::kShuffled};

std::string Run(ThreadOrder order, unsigned threads, const std::function<void()>& thread,
                size_t shared_bytes = 0) {
  CudaEmulator emulator(order, 3);
  const char* const failure = emulator.Launch(1, threads, shared_bytes, thread);
  return failure == nullptr ? std::string() : failure;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The PTX ISA's tables, by element: which lane and register hold (row, column) of each matrix.
struct Place {
  unsigned lane, reg, half;
};
Place OfA(unsigned row, unsigned k) {
  return {row % 8 * 4 + k % 8 / 2, (row < 8 ? 0u : 1u) + (k < 8 ? 0u : 2u), k % 2};
}
Place OfB(unsigned k, unsigned column) { return {column * 4 + k % 8 / 2, k < 8 ? 0u : 1u, k % 2}; }
Place OfC(unsigned row, unsigned column) {
  return {row % 8 * 4 + column / 2, (row < 8 ? 0u : 2u) + column % 2, 0};
}

void Set(uint32_t* reg, unsigned half, uint16_t bits) {
  *reg = (*reg & ~(0xFFFFu << (16 * half))) | uint32_t{bits} << (16 * half);
}

}  // namespace

TEST_CASE("mma.sync multiplies what its fragments hold") {
  std::mt19937 rng(5);
  std::uniform_int_distribution<int> small(-8, 8);  // sums are exact in f32
  int a[16][16], b[16][8], c[16][8];
  for (auto& row : a) {
    for (int& x : row) x = small(rng);
  }
  for (auto& row : b) {
    for (int& x : row) x = small(rng);
  }
  for (auto& row : c) {
    for (int& x : row) x = small(rng);
  }
  uint32_t a_regs[32][4] = {}, b_regs[32][2] = {};
  for (unsigned i = 0; i < 16; ++i) {
    for (unsigned k = 0; k < 16; ++k) {
      const Place p = OfA(i, k);
      Set(&a_regs[p.lane][p.reg], p.half, RoundToHalf(static_cast<float>(a[i][k])));
    }
  }
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned j = 0; j < 8; ++j) {
      const Place p = OfB(k, j);
      Set(&b_regs[p.lane][p.reg], p.half, RoundToHalf(static_cast<float>(b[k][j])));
    }
  }
  for (const ThreadOrder order : kOrders) {
    float sums[32][4];
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned j = 0; j < 8; ++j) {
        sums[OfC(i, j).lane][OfC(i, j).reg] = static_cast<float>(c[i][j]);
      }
    }
    REQUIRE(Run(order, 32, [&] {
              const unsigned lane = threadIdx.x;
              emulated::MultiplyAdd(sums[lane], a_regs[lane], b_regs[lane][0], b_regs[lane][1]);
            }).empty());
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned j = 0; j < 8; ++j) {
        int want = c[i][j];
        for (unsigned k = 0; k < 16; ++k) want += a[i][k] * b[k][j];
        CAPTURE(i, j);
        CHECK(sums[OfC(i, j).lane][OfC(i, j).reg] == static_cast<float>(want));
      }
    }
  }
}

TEST_CASE("mma.sync without all lanes of a warp fails the launch") {
  const std::string failure = Run(ThreadOrder::kAscending, 32, [] {
    if (threadIdx.x == 7) return;
    float c[4] = {};
    const uint32_t a[4] = {};
    emulated::MultiplyAdd(c, a, 0, 0);
  });
  CHECK(Has(failure, "mma.sync by lanes 0xffffff7f only"));
}

TEST_CASE("ldmatrix gives rows, transposed columns, and counts bank conflicts") {
  for (const bool transposed : {false, true}) {
    // Rows of 16 bytes without a gap have banks of their own; 128 bytes apart all have the same.
    for (const unsigned stride : {8u, 64u}) {
      CAPTURE(transposed, stride);
      uint32_t r[32][4] = {};
      CudaEmulator emulator(ThreadOrder::kShuffled, 1);
      const char* const failure = emulator.Launch(1, 32, size_t{32} * stride * 2, [&] {
        auto* const shared = reinterpret_cast<uint16_t*>(DynamicSharedMemory());
        const unsigned lane = threadIdx.x;
        for (unsigned i = 0; i < 8; ++i) {
          shared[lane * stride + i] = static_cast<uint16_t>(lane * 8 + i);
        }
        __syncwarp();
        if (transposed) {
          emulated::LoadMatricesTransposed(r[lane], shared + lane * stride);
        } else {
          emulated::LoadMatrices(r[lane], shared + lane * stride);
        }
      });
      REQUIRE(failure == nullptr);
      for (unsigned matrix = 0; matrix < 4; ++matrix) {
        for (unsigned row = 0; row < 8; ++row) {
          for (unsigned column = 0; column < 8; ++column) {
            const unsigned i = transposed ? column : row, j = transposed ? row : column;
            const uint32_t reg = r[i * 4 + j / 2][matrix];
            CHECK((j % 2 == 0 ? reg & 0xFFFF : reg >> 16) == (matrix * 8 + row) * 8 + column);
          }
        }
      }
      CHECK(emulator.bank_conflicts() == (stride == 8 ? 0 : 4 * 7));
    }
  }
}

TEST_CASE("ldmatrix of an odd address or of other memory fails the launch") {
  CHECK(Has(Run(
                ThreadOrder::kAscending, 32,
                [] {
                  uint32_t r[4];
                  emulated::LoadMatrices(r, DynamicSharedMemory() + 8);
                },
                64),
            "ldmatrix: an address that is no multiple of 16"));
  const GuardedMemory global("global", 64, 16);
  CHECK(Has(Run(ThreadOrder::kAscending, 32,
                [&] {
                  uint32_t r[4];
                  emulated::LoadMatrices(r, global.data());
                }),
            "ldmatrix: an address outside of shared memory"));
}

TEST_CASE("cp.async is there after the wait for its group, not before") {
  GuardedMemory global("global", 64, 16);
  for (unsigned i = 0; i < 64; ++i) global.data()[i] = static_cast<uint8_t>(i + 1);
  const std::vector<uint8_t> nothing(16, 0xFF);
  for (const ThreadOrder order : kOrders) {
    REQUIRE(Run(
                order, 1,
                [&] {
                  unsigned char* const to = DynamicSharedMemory();
                  const auto has = [&](unsigned i, const uint8_t* bytes) {
                    return std::memcmp(to + 16 * i, bytes, 16) == 0;
                  };
                  for (unsigned i = 0; i < 3; ++i) {
                    emulated::CopyAsync16(to + 16 * i, global.data() + 16 * i, 16);
                    emulated::CommitCopies();
                  }
                  __syncthreads();
                  REQUIRE(has(0, nothing.data()));
                  emulated::WaitForCopies<1>();
                  REQUIRE(has(0, global.data()));
                  REQUIRE(has(1, global.data() + 16));
                  REQUIRE(has(2, nothing.data()));
                  emulated::CopyAsync16(to, global.data() + 48, 5);  // of no group yet
                  emulated::WaitForCopies<0>();
                  REQUIRE(has(2, global.data() + 32));
                  REQUIRE(has(0, nothing.data()));
                  emulated::CommitCopies();
                  emulated::WaitForCopies<0>();
                  uint8_t want[16] = {};
                  std::memcpy(want, global.data() + 48, 5);
                  REQUIRE(has(0, want));
                  emulated::CopyAsync16(to, nullptr, 0);
                  emulated::CommitCopies();
                  emulated::WaitForCopies<0>();
                  REQUIRE(has(0, std::vector<uint8_t>(16).data()));
                },
                48)
                .empty());
  }
}

TEST_CASE("cp.async of wrong addresses fails the launch") {
  const GuardedMemory global("global", 64, 16);
  struct Row {
    size_t to, from, bytes;
    const char* failure;
  };
  for (const Row& row :
       {Row{8, 0, 16, "no multiple of 16"}, Row{0, 2, 16, "no multiple of 16"},
        Row{0, 0, 17, "cp.async of 17 bytes"}, Row{32, 0, 16, "outside of shared memory"}}) {
    CAPTURE(row.failure);
    CHECK(Has(Run(
                  ThreadOrder::kAscending, 1,
                  [&] {
                    emulated::CopyAsync16(DynamicSharedMemory() + row.to, global.data() + row.from,
                                          static_cast<uint32_t>(row.bytes));
                  },
                  32),
              row.failure));
  }
  CHECK(Has(Run(
                ThreadOrder::kAscending, 1,
                [&] {
                  unsigned char* const shared = DynamicSharedMemory();
                  emulated::CopyAsync16(shared, shared + 16, 16);
                },
                32),
            "cp.async from shared memory"));
  if (CudaEmulator::kFindsFaults) {
    CHECK(Has(Run(
                  ThreadOrder::kAscending, 1,
                  [&] { emulated::CopyAsync16(DynamicSharedMemory(), global.data() + 64, 4); }, 32),
              "byte 64 of 'global'"));
  }
}

TEST_CASE("halves are rounded to nearest even") {
  for (uint32_t h = 0; h < 0x7C00; ++h) {  // the finite ones, by their definition
    const int exponent = static_cast<int>(h >> 10);
    const double value =
        exponent == 0 ? std::ldexp(h & 0x3FF, -24) : std::ldexp(0x400 + (h & 0x3FF), exponent - 25);
    REQUIRE(emulated::HalfBitsToFloat(static_cast<uint16_t>(h)) == value);
    REQUIRE(emulated::FloatToHalfBits(static_cast<float>(value)) == h);
    // Halfway to the next one: to the even one of the two.
    const double step = std::ldexp(1, exponent == 0 ? -24 : exponent - 25);
    REQUIRE(emulated::FloatToHalfBits(static_cast<float>(value + step / 2)) == h + (h & 1));
    REQUIRE(emulated::FloatToHalfBits(static_cast<float>(-(value + step * 0.75))) ==
            (0x8000 | (h + 1)));
  }
  CHECK(emulated::PackHalves(1.0f, -2.0f) == 0xC0003C00);
  CHECK(emulated::FloatToHalfBits(INFINITY) == 0x7C00);
  CHECK(std::isnan(emulated::HalfBitsToFloat(emulated::FloatToHalfBits(NAN))));
}

}  // namespace sparkv::testing

#include "tests/testing/cuda_emulator/warp_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/half.h"
#include "tests/testing/cuda_emulator/cuda_emulator.h"
#include "tests/testing/cuda_emulator/emulated_block.h"

namespace sparkv::testing {
namespace {

constexpr unsigned kWhole = 0xFFFFFFFF;

const float* HalfTable() {
  static const auto* const table = [] {
    auto* const values = new std::vector<float>(1 << 16);
    for (uint32_t h = 0; h < values->size(); ++h) {
      kernels::HalfToFloatScalar(reinterpret_cast<const uint16_t*>(&h), &(*values)[h], 1);
    }
    return values;
  }();
  return table->data();
}

void NeedWholeWarp(const char* name, unsigned lanes) {
  if (lanes != kWhole) {
    FailThread(absl::StrCat(name, " by lanes 0x", absl::Hex(lanes), " only"));
  }
}

void NeedAlignment(const char* name, const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) {
    FailThread(absl::StrCat(name, ": an address that is no multiple of 16"));
  }
}

struct Product {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};

void Multiply(void* const* operands, unsigned lanes) {
  NeedWholeWarp("mma.sync", lanes);
  const float* const half = HalfTable();
  float a[16][16], b[16][8];
  for (unsigned l = 0; l < 32; ++l) {
    const auto& in = *static_cast<const Product*>(operands[l]);
    const unsigned group = l / 4, pair = l % 4;
    for (unsigned i = 0; i < 4; ++i) {
      float* const to = &a[group + 8 * (i % 2)][2 * pair + 8 * (i / 2)];
      to[0] = half[in.a[i] & 0xFFFF];
      to[1] = half[in.a[i] >> 16];
    }
    for (unsigned i = 0; i < 2; ++i) {
      b[2 * pair + 8 * i][group] = half[in.b[i] & 0xFFFF];
      b[2 * pair + 8 * i + 1][group] = half[in.b[i] >> 16];
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    float sum[8] = {};
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned column = 0; column < 8; ++column) sum[column] += a[row][k] * b[k][column];
    }
    for (unsigned pair = 0; pair < 4; ++pair) {
      const auto& out = *static_cast<const Product*>(operands[4 * (row % 8) + pair]);
      float* const c = out.c + 2 * (row / 8);
      c[0] += sum[2 * pair];
      c[1] += sum[2 * pair + 1];
    }
  }
}

struct Load {
  uint32_t* r;
  const void* row;
};

template <bool kTransposed>
void LoadAll(void* const* operands, unsigned lanes) {
  NeedWholeWarp("ldmatrix", lanes);
  for (unsigned m = 0; m < 4; ++m) {
    uint16_t matrix[8][8];
    uint32_t banks_of_row[8];  // which of the 8 times 4 banks
    for (unsigned i = 0; i < 8; ++i) {
      const void* const row = static_cast<const Load*>(operands[8 * m + i])->row;
      std::memcpy(matrix[i], row, 16);
      banks_of_row[i] = reinterpret_cast<uintptr_t>(row) / 16 % 8;
    }
    unsigned most = 1;
    for (unsigned banks = 0; banks < 8; ++banks) {
      std::vector<const void*> rows;  // different ones
      for (unsigned i = 0; i < 8; ++i) {
        const void* const row = static_cast<const Load*>(operands[8 * m + i])->row;
        if (banks_of_row[i] == banks && std::count(rows.begin(), rows.end(), row) == 0)
          rows.push_back(row);
      }
      most = std::max(most, static_cast<unsigned>(rows.size()));
    }
    EmulatedBlock::Current()->CountBankConflicts(most - 1);
    for (unsigned l = 0; l < 32; ++l) {
      const unsigned group = l / 4, pair = l % 4;
      const uint16_t low = kTransposed ? matrix[2 * pair][group] : matrix[group][2 * pair];
      const uint16_t high = kTransposed ? matrix[2 * pair + 1][group] : matrix[group][2 * pair + 1];
      static_cast<Load*>(operands[l])->r[m] = low | uint32_t{high} << 16;
    }
  }
}

}  // namespace

float ValueOfHalf(uint16_t half) { return HalfTable()[half]; }

uint16_t RoundToHalf(float value) {
  uint16_t half;
  kernels::FloatToHalfScalar(&value, &half, 1);
  return half;
}

void MultiplyInWarp(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Product product{c, a, {b0, b1}};
  MeetInWarp("mma.sync", kWhole, &product, Multiply);
}

void LoadMatricesInWarp(uint32_t (&r)[4], const void* row, bool transposed) {
  NeedAlignment("ldmatrix", row);
  if (!EmulatedBlock::Current()->IsShared(row, 16)) {
    FailThread("ldmatrix: an address outside of shared memory");
  }
  Load load{r, row};
  MeetInWarp(transposed ? "ldmatrix.trans" : "ldmatrix", kWhole, &load,
             transposed ? LoadAll<true> : LoadAll<false>);
}

void CopyAsync(void* shared, const void* global, uint32_t bytes) {
  EmulatedBlock* const block = EmulatedBlock::Current();
  NeedAlignment("cp.async", shared);
  NeedAlignment("cp.async", global);
  if (bytes > 16) FailThread(absl::StrCat("cp.async of ", bytes, " bytes"));
  if (!block->IsShared(shared, 16)) FailThread("cp.async to an address outside of shared memory");
  if (bytes > 0 && block->IsShared(global, 1)) FailThread("cp.async from shared memory");
  uint8_t now[16];
  if (bytes > 0) std::memcpy(now, global, bytes);  // what can't be read is found here
  asm volatile("" ::"r"(now) : "memory");
  std::memset(shared, 0xFF, 16);
  block->QueueCopy(shared, global, bytes);
}

void CommitCopies() { EmulatedBlock::Current()->CommitCopies(); }
void WaitForCopies(unsigned left) { EmulatedBlock::Current()->WaitForCopies(left); }

}  // namespace sparkv::testing

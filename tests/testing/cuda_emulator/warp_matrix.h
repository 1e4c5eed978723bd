// What kernels/cuda_mma.h is in the emulator: tensor cores, ldmatrix and cp.async by their
// definition. The launch fails when a lane is missing, when an address is no multiple of 16 or not
// of the kind of memory that it must be.
#pragma once

#include <cstdint>

namespace sparkv::testing {

// Called by emulated threads ---------------------------------------------------------------------

void MultiplyInWarp(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void LoadMatricesInWarp(uint32_t (&r)[4], const void* row, bool transposed);

// The 16 bytes at `shared` are 0xFF from the start of a copy until this thread has waited for it:
// what reads them too early, or still needs what was there, gets NaNs. `global` is read when the
// thread waits, so that what was written in between shows, too.
void CopyAsync(void* shared, const void* global, uint32_t bytes);
void CommitCopies();
void WaitForCopies(unsigned left);

// From anywhere.
float ValueOfHalf(uint16_t half);
uint16_t RoundToHalf(float value);

}  // namespace sparkv::testing

// THIRDS of common/codec/FORMAT.md section 3.1: each value is replaced by one of the three of a
// quantizer with a third of the step, by interleaved rANS whose model is given by whether the value
// is zero so far. A scalar twin, an AVX2 twin and a NEON twin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparkv::kernels {

// Frequencies, of 4096 in all, of one run. The slots of a zero are, in this order: +1, -1 (equally
// many), 0; of another value b: 3b - sign(b), 3b, 3b + sign(b).
struct ThirdsModel {
  uint16_t zero_to_one = 0;  // of +1, and of -1; at most 2048
  uint16_t inward = 0;       // of 3b - sign(b); above 0
  uint16_t same = 0;         // of 3b; above 0, and inward + same < 4096
};

struct ThirdsInput {
  std::span<const ThirdsModel> model_of_run;  // [runs]
  uint32_t length = 0;                        // values of a run, >= 1
  std::span<const uint8_t> states;            // 4 * min(32, length) bytes, little-endian
  std::span<const uint8_t> words;             // 2 bytes each, little-endian
};

// Refines all runs * length values, run after run, in place; |value| must be at most 10922. False,
// with values undefined, when `states` has another size, a state is below the lower bound at the
// start, the words run out or are left over, or a state does not end at the lower bound.
bool RansThirds(const ThirdsInput& input, int16_t* values);
bool RansThirdsScalar(const ThirdsInput& input, int16_t* values);  // the reference twin

}  // namespace sparkv::kernels

// Frequency tables of the first plane, trained on the symbols of calibration texts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sparkv {

struct TrainedTables {
  std::vector<uint32_t> frequencies;  // [kProfileTables][kProfileSymbols]
  std::vector<uint8_t> table_of_run;  // [runs]: the one that codes the run best
};

// counts [runs][kProfileSymbols]: how often each component of each layer has each symbol. Groups
// runs of like spread, then moves each to the group that codes it best, a few times. Deterministic.
TrainedTables TrainTables(std::span<const uint32_t> counts);

// Bits that the run's counts take with a table, escapes included.
double RunBits(std::span<const uint32_t> counts, std::span<const uint32_t> frequencies);

}  // namespace sparkv

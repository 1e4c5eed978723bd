// Makes a model profile (common/codec/profile.h) from a few texts: how K and V are distributed,
// what of them can be predicted, and how much an error in each layer's K and V changes what the
// model says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "common/calibrate/fidelity.h"
#include "common/llm/decoder.h"
#include "common/llm/model.h"

namespace sparkv {

struct CalibrationOptions {
  bool predict = true;      // aatc-pred, else aatc
  uint32_t context = 2048;  // tokens of each text at most
  double target_kl =
      0.0075;  // of the first level, on the calibration texts; the step follows from it
  uint32_t rank_token = 384;  // at most d_model, rounded down to a multiple of 32
  uint32_t rank_below = 384;  // at most the values of K and V, rounded likewise
  int threads = 0;            // 0: the machine's cores
};

struct LayerReport {
  double bits_k = 0, bits_v = 0;                // of the first level, a value
  double sensitivity_k = 0, sensitivity_v = 0;  // KL for noise of one squared transform step
};

struct LevelReport {
  int level = 0;
  double bytes_per_token = 0;
  Fidelity fidelity;
};

struct CalibrationReport {
  std::string codec;
  uint32_t texts = 0, tokens = 0;
  double step = 0;
  double seconds = 0;
  std::vector<LayerReport> layers;  // [layers]; layer 0 is never sent and has zeros
  std::vector<LevelReport> levels;
};

struct Calibration {
  std::string profile;  // its bytes
  CalibrationReport report;
};

// texts: token ids, each at least 256 + FidelityProbe::kFollowing long. The same model, texts and
// options give the same profile on one build and number of threads. progress(part done 0..1, what)
// on the calling thread. InvalidArgument (texts, a model whose K has no group of 32 values),
// Cancelled, ResourceExhausted.
absl::StatusOr<Calibration> Calibrate(
    std::shared_ptr<const Model> model, const std::vector<std::vector<int32_t>>& texts,
    const CalibrationOptions& options, const CancelToken& cancel,
    const std::function<void(double, const std::string&)>& progress);

}  // namespace sparkv

// A whole calibration of a tiny model. What its profiles are worth: sparkv bench codec.
#include "common/calibrate/calibrator.h"

#include <random>
#include <string>
#include <vector>

#include "common/calibrate/calibration_report.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/profile.h"
#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"

namespace sparkv {
namespace {

std::shared_ptr<const Model> TinyModel(std::string_view name) {
  std::string gguf = testing::TinyGguf(name);
  testing::PatchKey(&gguf, "llama.context_length", uint32_t{2048});
  auto model = testing::LoadBytes(gguf);
  REQUIRE_OK(model);
  return *model;
}

std::vector<std::vector<int32_t>> Texts() {
  std::vector<std::vector<int32_t>> out(2);
  std::mt19937 rng(3);
  for (auto& text : out) {
    for (int i = 0; i < 420; ++i) text.push_back(static_cast<int32_t>(rng() % 60));
  }
  return out;
}

const CalibrationOptions kOptions{
    .predict = false, .context = 280, .target_kl = 1e-3, .threads = 2};

}  // namespace

TEST_CASE("A calibration gives the KL that was asked for, and the same profile again") {
  const auto model = TinyModel("llama");
  double last = 0;
  const auto first = Calibrate(model, Texts(), kOptions, {}, [&](double done, const std::string&) {
    CHECK(done >= last);
    CHECK(done <= 1);
    last = done;
  });
  REQUIRE_OK(first);
  CHECK(last > 0.9);
  const auto again = Calibrate(model, Texts(), kOptions, {}, {});
  REQUIRE_OK(again);
  CHECK(again->profile == first->profile);

  const auto profile = CodecProfile::Parse(first->profile);
  REQUIRE_OK(profile);
  CHECK((*ProfileCodec(**profile))->name == "aatc");
  CHECK((*profile)->shape().model_fingerprint == model->fingerprint());
  const CalibrationReport& r = first->report;
  CHECK(r.texts == 2);
  CHECK(r.tokens == 2 * 280);
  REQUIRE(r.layers.size() == 2);
  CHECK(r.layers[1].sensitivity_v > 0);
  CHECK(r.layers[1].bits_k > 0);
  REQUIRE(r.levels.size() == 5);
  CHECK(r.levels[0].fidelity.kl > 0.5 * kOptions.target_kl);
  CHECK(r.levels[0].fidelity.kl < 2 * kOptions.target_kl);
  for (size_t i = 1; i < r.levels.size(); ++i) {
    CHECK(r.levels[i].bytes_per_token > r.levels[i - 1].bytes_per_token);
    CHECK(r.levels[i].fidelity.kl < r.levels[i - 1].fidelity.kl);
  }
  CHECK(ReportText(r).find("sensitivity") != std::string::npos);
  CHECK(ReportSvg(r).find("<svg") != std::string::npos);
}

TEST_CASE("A calibration says what it cannot use, and ends when it is cancelled") {
  const auto none = Calibrate(TinyModel("llama"), {}, kOptions, {}, {});
  CHECK(absl::IsInvalidArgument(none.status()));
  // K of 16 values makes no group of 32, and d_model 48 is none for the embeddings.
  const auto narrow = Calibrate(TinyModel("llama3"), Texts(), kOptions, {}, {});
  CHECK(absl::IsInvalidArgument(narrow.status()));
  CalibrationOptions predict = kOptions;
  predict.predict = true;
  const auto embeddings = Calibrate(TinyModel("llama"), Texts(), predict, {}, {});
  CHECK(absl::IsInvalidArgument(embeddings.status()));
  CHECK(embeddings.status().message().find("d_model 48") != absl::string_view::npos);
  const auto small =
      Calibrate(TinyModel("llama"), {std::vector<int32_t>(100, 5)}, kOptions, {}, {});
  CHECK(absl::IsInvalidArgument(small.status()));

  CancelToken cancel;
  const auto cancelled = Calibrate(TinyModel("llama"), Texts(), kOptions, cancel,
                                   [&](double done, const std::string&) {
                                     if (done > 0.3) cancel.Cancel();
                                   });
  CHECK(absl::IsCancelled(cancelled.status()));
}

}  // namespace sparkv

#include "edge/cli/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/utf8.h"
#include "common/calibrate/calibration_report.h"
#include "common/calibrate/calibrator.h"
#include "common/codec/profile.h"
#include "common/llm/model.h"
#include "edge/cli/exit_code.h"
#include "edge/cli/interrupt.h"
#include "edge/cli/json_output.h"
#include "edge/cli/output_path.h"
#include "edge/cli/progress.h"

namespace sparkv::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{16} << 20;

struct CalibrateOptions {
  std::string model;
  std::vector<std::string> texts;
  std::string out;
  std::string report;  // SVG; empty: beside out
  std::string scripts = "scripts";
  std::string codec = "aatc-pred";
  double target_kl = CalibrationOptions{}.target_kl;
  uint32_t context = CalibrationOptions{}.context;
  int threads = 0;
  bool json = false;
  bool quiet = false;
};

// The files given, else the project's calibration texts.
absl::StatusOr<std::vector<std::string>> TextPaths(const CalibrateOptions& options) {
  std::vector<std::string> paths = options.texts;
  if (!paths.empty()) return paths;
  const std::string folder = options.scripts + "/texts/calibration";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    return absl::NotFoundError(absl::StrCat("no texts in ", folder,
                                            "; name files, or the repository's scripts folder with "
                                            "--scripts"));
  }
  return paths;
}

Json ReportJson(const CalibrationReport& r, const std::string& path, const Digest& digest,
                uint64_t bytes) {
  Json layers = Json::array(), levels = Json::array();
  for (const LayerReport& l : r.layers) {
    layers.push_back({{"bits_k", l.bits_k},
                      {"bits_v", l.bits_v},
                      {"sensitivity_k", l.sensitivity_k},
                      {"sensitivity_v", l.sensitivity_v}});
  }
  for (const LevelReport& l : r.levels) {
    levels.push_back({{"level", l.level},
                      {"bytes_per_token", l.bytes_per_token},
                      {"kl", l.fidelity.kl},
                      {"copy_kl", l.fidelity.copy_kl},
                      {"top1", l.fidelity.top1}});
  }
  return {{"profile", path},  {"digest", DigestToHex(digest)},
          {"bytes", bytes},   {"codec", r.codec},
          {"texts", r.texts}, {"tokens", r.tokens},
          {"step", r.step},   {"seconds", r.seconds},
          {"layers", layers}, {"levels", levels}};
}

absl::Status Run(const CalibrateOptions& options, const CancelToken& cancel) {
  if (!std::isfinite(options.target_kl))
    return absl::InvalidArgumentError("--target-kl: got no number, allowed: 1e-05 to 1");
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, TextPaths(options));
  const std::string picture = options.report.empty() ? options.out + ".svg" : options.report;
  std::vector<std::string> files = paths;
  files.push_back(options.model);
  RETURN_IF_ERROR(CheckOutputPath("--out", options.out, files));
  files.push_back(options.out);
  RETURN_IF_ERROR(CheckOutputPath("--report", picture, files));
  ASSIGN_OR_RETURN(const auto model, Model::Load(options.model));
  std::vector<std::vector<int32_t>> texts;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
    RETURN_IF_ERROR(CheckUtf8(text, path));
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     model->tokenizer().Encode(
                         text, {.add_bos = true, .cancelled = [&] { return cancel.cancelled(); }}));
    constexpr size_t kLeast = 256 + FidelityProbe::kFollowing;
    if (ids.size() < kLeast) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": has ", ids.size(), " tokens, at least ", kLeast, " are needed"));
    }
    texts.push_back(std::move(ids));
  }
  CalibrationOptions calibration;
  calibration.predict = options.codec == "aatc-pred";
  calibration.target_kl = options.target_kl;
  calibration.context = options.context;
  calibration.threads = options.threads;
  Progress progress("calibrating", "%", options.quiet || options.json);
  ASSIGN_OR_RETURN(
      const Calibration made,
      Calibrate(model, texts, calibration, cancel, [&](double done, const std::string&) {
        progress.Update(static_cast<uint64_t>(done * 100), 100);
      }));
  progress.Update(100, 100);
  RETURN_IF_ERROR(WriteFileDurably(options.out, made.profile));
  RETURN_IF_ERROR(WriteFileDurably(picture, ReportSvg(made.report)));
  ASSIGN_OR_RETURN(const auto profile, CodecProfile::Parse(made.profile));
  if (options.json) {
    std::printf(
        "%s\n",
        Dump(ReportJson(made.report, options.out, profile->digest(), made.profile.size())).c_str());
  } else {
    std::printf("%sprofile %s\nfile    %s, %s\npicture %s\n", ReportText(made.report).c_str(),
                DigestToHex(profile->digest()).c_str(), options.out.c_str(),
                HumanBytes(made.profile.size()).c_str(), picture.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddCalibrateCommand(CLI::App* app, int* exit_code) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app->add_subcommand(
      "calibrate", "Make a codec profile of a model: what aatc and aatc-pred need to know of it");
  command->footer(
      "Takes minutes on a CPU. The same model, texts and options give the same profile.\n"
      "examples:\n"
      "  sparkv calibrate model.gguf --out model.skvp\n"
      "  sparkv calibrate model.gguf my-manual.txt my-mails.txt --out model.skvp\n"
      "  sparkv-server --model model.gguf --profile model.skvp");
  command->add_option("model", options->model, "GGUF file")->required()->envname("SPARKV_MODEL");
  command->add_option(
      "texts", options->texts,
      "UTF-8 texts of the kinds that will be stored, 2,200 tokens of each are used; none: "
      "the project's own");
  command->add_option("--out", options->out, "the profile's file")->required();
  command->add_option("--report", options->report, "the picture's file; default: OUT.svg");
  command->add_option("--codec", options->codec, "which codec the profile is for")
      ->check(CLI::IsMember({"aatc-pred", "aatc"}))
      ->capture_default_str();
  command
      ->add_option("--target-kl", options->target_kl,
                   "KL of the first level on these texts: the knob between size and fidelity")
      ->check(CLI::Range(1e-5, 1.0))
      ->capture_default_str();
  command->add_option("--tokens", options->context, "tokens of each text at most")
      ->check(CLI::Range(256u, 32768u))
      ->capture_default_str();
  command->add_option("--scripts", options->scripts, "the repository's scripts folder")
      ->capture_default_str()
      ->envname("SPARKV_SCRIPTS");
  command->add_option("--threads", options->threads, "CPU threads, 0: all cores");
  command->add_flag("--json", options->json, "print the report as JSON");
  command->add_flag("--quiet", options->quiet, "no progress bar");
  command->callback([options, exit_code] {
    InterruptWatch interrupt;
    CancelToken cancel;
    *exit_code = Report(Run(*options, cancel), options->json);
  });
}

}  // namespace sparkv::cli

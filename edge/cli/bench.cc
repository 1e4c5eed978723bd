#include "edge/cli/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "edge/cli/output_path.h"

namespace sparkv::cli {

double Seconds(const std::function<absl::Status()>& fn, absl::Status* status) {
  const auto begin = std::chrono::steady_clock::now();
  status->Update(fn());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

absl::StatusOr<std::string> BenchDocument(const BenchOptions& options) {
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  std::vector<std::string> paths = options.contexts;
  if (paths.empty()) paths.push_back(options.scripts + "/demo/hacker-folklore.txt");
  std::string text;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::string part, ReadFile(path, kMaxBytes));
    text += part;
  }
  if (text.empty()) return absl::InvalidArgumentError("the benchmark's document is empty");
  return text;
}

absl::StatusOr<std::vector<BenchProfile>> BenchProfiles(const BenchOptions& options,
                                                        const Digest& model_fingerprint) {
  std::vector<std::string> paths = options.profiles;
  if (paths.empty()) {
    std::error_code error;
    for (const auto& e :
         std::filesystem::directory_iterator(options.scripts + "/../deploy/profiles", error)) {
      if (e.path().extension() == ".skvp") paths.push_back(e.path().string());
    }
    std::sort(paths.begin(), paths.end());
  }
  std::vector<BenchProfile> out;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxProfileBytes));
    absl::StatusOr<std::shared_ptr<const CodecProfile>> profile =
        CodecProfile::Parse(std::move(bytes));
    if (!profile.ok()) {
      return absl::Status(profile.status().code(),
                          absl::StrCat(path, ": ", profile.status().message()));
    }
    if ((*profile)->shape().model_fingerprint != model_fingerprint) {
      if (!options.profiles.empty()) {
        return absl::FailedPreconditionError(absl::StrCat(path, " is for another model"));
      }
      std::fprintf(stderr, "%s is for another model, left out\n", path.c_str());
      continue;
    }
    out.push_back({.path = path, .profile = *std::move(profile)});
  }
  return out;
}

void AddBenchCommands(CLI::App* app, BenchOptions* options, absl::Status* status) {
  CLI::App* bench = app->add_subcommand("bench", "Measure against the peers, in one run");
  bench->require_subcommand(1);
  bench->footer(
      "examples:\n"
      "  sparkv bench prefill --model M.gguf --quick --json figures.json\n"
      "  scripts/peer_venv.sh && sparkv bench prefill --model M.gguf --peer-python "
      ".deps/peer/bin/python\n"
      "  sparkv bench load --model M.gguf --context book.txt --sizes 2048 4096\n"
      "  sparkv bench codec --model M.gguf --quick\n"
      "--json writes every figure with median, spread, peer, commit and machine; "
      "scripts/bench_report.py draws them.");
  const auto common = [options](CLI::App* command) {
    command->add_option("--model", options->model, "GGUF file")
        ->required()
        ->envname("SPARKV_MODEL");
    command->add_flag("--quick", options->quick, "one small size, 3 repetitions");
    command->add_option("--json", options->json, "write the figures to this file");
    command->add_option("--context", options->contexts, "text files that make the document");
    command->add_option("--scripts", options->scripts, "the repository's scripts folder")
        ->capture_default_str()
        ->envname("SPARKV_SCRIPTS");
    command->add_option("--threads", options->threads, "CPU threads, 0: all cores");
    command->add_option("--repetitions", options->repetitions, "paired runs, 0: 7 (3 with --quick)")
        ->check(CLI::Range(0, 100));
    command->add_option("--sizes", options->sizes, "context sizes in tokens")
        ->check(CLI::Range(16u, 1u << 20));
  };
  const auto run = [options, status](absl::Status (*command)(const BenchOptions&, FigureFile*)) {
    FigureFile figures;
    if (!options->json.empty()) *status = CheckOutputPath("--json", options->json, {});
    if (!status->ok()) return;
    *status = command(*options, &figures);
    // What was measured before a failure is kept.
    if (!options->json.empty() && !figures.figures().empty()) {
      const absl::Status written = figures.Write(options->json);
      if (status->ok()) *status = written;
    }
  };
  CLI::App* prefill =
      bench->add_subcommand("prefill", "Local prefill and decode against llama.cpp");
  common(prefill);
  prefill->add_option("--peer-python", options->peer_python,
                      "a Python with llama-cpp-python (scripts/peer_venv.sh); empty: no peer");
  CLI::App* attention = bench->add_subcommand(
      "attention",
      "Sparse prefill against dense: key blocks visited, time, and what the model says");
  common(attention);
  attention->add_option("--tau", options->taus, "shares of the pooled attention that are visited")
      ->check(CLI::Range(0.0, 1.0));
  attention
      ->add_option("--theta", options->thetas,
                   "self-similarity from which a block is represented by its mean")
      ->check(CLI::Range(-1.0, 2.0));
  attention
      ->add_option("--skip-below", options->skips,
                   "values of a key block are left out for rows whose scores are so far below "
                   "their largest, 0: never")
      ->check(CLI::Range(0.0, 1000.0));
  attention->callback([run] { run(&RunBenchAttention); });
  CLI::App* load = bench->add_subcommand("load", "TTFT of every policy over a shaped link");
  common(load);
  load->add_option("--rtt-ms", options->rtt_ms, "round-trip time of the shaped link")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 10000.0));
  load->add_option("--rates", options->rates_mbit, "further link rates in Mbit/s")
      ->check(CLI::Range(0.1, 100000.0));
  load->add_option("--level", options->level, "codec level, 0: the default");
  load->add_option("--codec", options->codec, "of the contexts; default: the server's");
  load->add_option("--profile", options->profiles,
                   "the server's codec profiles; none: those of deploy/profiles");

  prefill->callback([run] { run(&RunBenchPrefill); });
  CLI::App* codec = bench->add_subcommand(
      "codec",
      "Every codec: container bytes against fidelity on texts of several kinds, and speeds");
  common(codec);
  codec->add_option("--profile", options->profiles,
                    "codec profiles (sparkv calibrate); none: those of deploy/profiles");
  codec->add_option("--part", options->part, "what to measure")
      ->check(CLI::IsMember({"all", "quality", "speed"}))
      ->capture_default_str();
  codec->callback([run] { run(&RunBenchCodec); });
  load->callback([run] { run(&RunBenchLoad); });
}

}  // namespace sparkv::cli

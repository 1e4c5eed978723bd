// `sparkv bench prefill|attention|load|codec`: figures beside a peer's, measured in the same run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/codec/profile.h"
#include "edge/cli/figures.h"
#include "edge/cli/subprocess.h"

namespace sparkv::cli {

struct BenchOptions {
  std::string model;
  bool quick = false;
  std::string json;                   // figures file; empty: none
  std::vector<std::string> contexts;  // text files; empty: the demo document
  std::string peer_python;            // a Python with llama-cpp-python; empty: no peer
  std::string scripts = "scripts";    // the repository's scripts folder
  int threads = 0;                    // 0: the machine's cores
  int repetitions = 0;                // 0: 7, or 3 with --quick
  double rtt_ms = 20;
  std::vector<double> rates_mbit;     // load: besides the balanced rate and its multiples
  std::vector<uint32_t> sizes;        // tokens; empty: 512, 1024, 2048, 4096
  uint32_t level = 0;                 // load: codec level; 0: the default
  std::vector<std::string> profiles;  // codec profiles; empty: those of deploy/profiles
  std::string codec;                  // load: of the contexts; empty: the server's default
  std::string part = "all";           // codec: quality, speed or all
  std::vector<double> taus, thetas, skips;  // attention: settings of sparge; empty: the defaults
};

// A file of options.profiles, or of the repository's deploy/profiles, that is for the model.
struct BenchProfile {
  std::string path;
  std::shared_ptr<const CodecProfile> profile;
};
// Files there that are for another model are named on stderr and left out. NotFound and the like
// for a file that was named, FailedPrecondition when it is for another model.
absl::StatusOr<std::vector<BenchProfile>> BenchProfiles(const BenchOptions& options,
                                                        const Digest& model_fingerprint);

// Adds `bench` and its subcommands to the tool. *exit_status receives the status of the one that
// ran.
void AddBenchCommands(CLI::App* app, BenchOptions* options, absl::Status* status);

absl::Status RunBenchPrefill(const BenchOptions& options, FigureFile* figures);
absl::Status RunBenchAttention(const BenchOptions& options, FigureFile* figures);
absl::Status RunBenchLoad(const BenchOptions& options, FigureFile* figures);
absl::Status RunBenchCodec(const BenchOptions& options, FigureFile* figures);

// Seconds that fn takes; *status is updated with what it returns.
double Seconds(const std::function<absl::Status()>& fn, absl::Status* status);

// The benchmark's document: the files given, else the demo document, read whole (at most 16 MiB
// each).
absl::StatusOr<std::string> BenchDocument(const BenchOptions& options);

}  // namespace sparkv::cli

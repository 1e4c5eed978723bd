// Local dense prefill and decode against llama.cpp on the same ids, repetitions interleaved.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/llm/decoder.h"
#include "edge/cli/bench.h"

namespace sparkv::cli {
namespace {

constexpr int kDecodeSteps = 32;

// One llama.cpp process: a model file with flash attention off or on.
struct Peer {
  std::string name;
  std::unique_ptr<Subprocess> process;
  std::vector<double> seconds;

  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& command) {
    RETURN_IF_ERROR(process->WriteLine(command.dump()));
    ASSIGN_OR_RETURN(const std::string line, process->ReadLine(absl::Minutes(10)));
    nlohmann::json answer = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object() || answer.contains("error")) {
      return absl::UnavailableError(absl::StrCat("the peer answered: ", line));
    }
    return answer;
  }
  absl::StatusOr<double> AskSeconds(const nlohmann::json& command) {
    ASSIGN_OR_RETURN(const nlohmann::json answer, Ask(command));
    if (!answer.contains("seconds") || !answer["seconds"].is_number()) {
      return absl::UnavailableError("the peer's answer has no seconds");
    }
    return answer["seconds"].get<double>();
  }
};

// The F16 GGUF of the same values, made once beside the other caches.
absl::StatusOr<std::string> F16Model(const BenchOptions& options) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      std::filesystem::path(
          cache != nullptr ? cache : absl::StrCat(home != nullptr ? home : "/tmp", "/.cache")) /
      "sparkv";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const uint64_t size = std::filesystem::file_size(options.model, error);
  const std::filesystem::path out =
      folder /
      absl::StrCat(std::filesystem::path(options.model).stem().string(), ".", size, ".f16.gguf");
  if (std::filesystem::is_regular_file(out, error)) return out.string();
  std::fprintf(stderr, "making the F16 GGUF of the same values: %s\n", out.c_str());
  const std::string part = out.string() + ".part";
  ASSIGN_OR_RETURN(auto process,
                   Subprocess::Start({options.peer_python, options.scripts + "/make_f16_gguf.py",
                                      options.model, part}));
  while (process->ReadLine(absl::Minutes(5)).ok()) {
  }
  process.reset();
  std::filesystem::rename(part, out, error);
  if (error) return absl::UnavailableError("make_f16_gguf.py left no file; see its message above");
  return out.string();
}

absl::StatusOr<std::vector<Peer>> StartPeers(const BenchOptions& options,
                                             const std::string& tokens_path, int threads) {
  std::vector<Peer> peers;
  if (options.peer_python.empty()) return peers;
  ASSIGN_OR_RETURN(const std::string f16, F16Model(options));
  for (const auto& [label, path] : {std::pair{"shipped", options.model}, std::pair{"f16", f16}}) {
    for (const bool flash : {false, true}) {
      std::vector<std::string> argv = {options.peer_python,
                                       options.scripts + "/peer_llamacpp.py",
                                       path,
                                       tokens_path,
                                       "--threads",
                                       absl::StrCat(threads)};
      if (flash) argv.push_back("--flash-attn");
      Peer peer;
      peer.name = absl::StrCat("llama.cpp ", label, flash ? " fa" : "");
      ASSIGN_OR_RETURN(peer.process, Subprocess::Start(argv, "/dev/null"));
      ASSIGN_OR_RETURN(const nlohmann::json info, peer.Ask({{"op", "info"}}));
      std::fprintf(stderr, "peer: %s (llama-cpp-python %s)\n", peer.name.c_str(),
                   info.value("version", "?").c_str());
      peers.push_back(std::move(peer));
    }
  }
  return peers;
}

// The fastest by median of the peers whose name contains `label`; null without peers.
Peer* Fastest(std::vector<Peer>& peers, const std::string& label) {
  Peer* best = nullptr;
  for (Peer& peer : peers) {
    if (peer.name.find(label) == std::string::npos || peer.seconds.empty()) continue;
    if (best == nullptr || *Median(peer.seconds) < *Median(best->seconds)) best = &peer;
  }
  return best;
}

void AddRatio(const std::string& name, double target, const std::vector<double>& ours, Peer* peer,
              double work, FigureFile* figures) {
  Figure figure;
  figure.figure = name;
  figure.unit = "x";
  figure.target = target;
  if (peer == nullptr) {
    figure.note = "no peer: pass --peer-python (scripts/peer_venv.sh)";
  } else {
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size() && i < peer->seconds.size(); ++i) {
      ratios.push_back(peer->seconds[i] / ours[i]);
    }
    SetRuns(ratios, &figure);
    figure.peer = peer->name;
    figure.peer_value = work / *Median(peer->seconds);
  }
  figures->Add(std::move(figure));
}

}  // namespace

absl::Status RunBenchPrefill(const BenchOptions& options, FigureFile* figures) {
  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  const int repetitions = options.repetitions > 0 ? options.repetitions : options.quick ? 3 : 7;
  std::vector<uint32_t> sizes = options.sizes;
  if (sizes.empty())
    sizes = options.quick ? std::vector<uint32_t>{512, 1024}
                          : std::vector<uint32_t>{512, 1024, 2048, 4096};
  const uint32_t longest = *std::max_element(sizes.begin(), sizes.end());

  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(options.model));
  if (longest + kDecodeSteps > model->config().context_length) {
    return absl::InvalidArgumentError(absl::StrCat("a size of ", longest,
                                                   " tokens, the model allows ",
                                                   model->config().context_length - kDecodeSteps));
  }
  ASSIGN_OR_RETURN(const std::string text, BenchDocument(options));
  EncodeOptions encode;
  ASSIGN_OR_RETURN(const std::vector<int32_t> document, model->tokenizer().Encode(text, encode));
  std::vector<int32_t> ids;
  while (ids.size() < longest + kDecodeSteps)
    ids.insert(ids.end(), document.begin(), document.end());
  ids.resize(longest + kDecodeSteps);

  std::error_code no_folder;
  const std::string tokens_path = (std::filesystem::temp_directory_path(no_folder) /
                                   absl::StrCat("sparkv-bench-", ::getpid(), ".json"))
                                      .string();
  if (no_folder) return absl::InvalidArgumentError(absl::StrCat("TMPDIR: ", no_folder.message()));
  RETURN_IF_ERROR(WriteFileDurably(tokens_path, nlohmann::json(ids).dump()));
  absl::StatusOr<std::vector<Peer>> started = StartPeers(options, tokens_path, threads);
  std::error_code ignored;
  std::filesystem::remove(tokens_path, ignored);
  RETURN_IF_ERROR(started.status());
  std::vector<Peer>& peers = *started;

  const KvGeometry geometry = model->config().Geometry(KvDtype::kF16);
  ASSIGN_OR_RETURN(const std::shared_ptr<KvPagePool> pool,
                   KvPagePool::Create(geometry, geometry.token_bytes() *
                                                    (longest + kDecodeSteps + 2 * kPageTokens)));
  DecoderOptions decoder_options;
  decoder_options.threads = threads;
  Decoder decoder(model, decoder_options);
  std::vector<float> logits(model->config().vocabulary);

  std::printf("%s\n%-28s %10s %12s %14s %14s\n", MachineLine().c_str(), "", "tokens/s", "min-max",
              "vs lcpp f16", "vs lcpp as is");
  const auto row = [&](const std::string& label, double work, const std::vector<double>& seconds) {
    const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
    const auto ratio = [&](Peer* peer) {
      if (peer == nullptr) return std::string("-");
      std::vector<double> ratios;
      for (size_t i = 0; i < seconds.size(); ++i) ratios.push_back(peer->seconds[i] / seconds[i]);
      return absl::StrFormat("%.2fx (%.0f)", *Median(ratios), work / *Median(peer->seconds));
    };
    std::printf("%-28s %10.1f %5.0f-%-6.0f %14s %14s\n", label.c_str(), work / *Median(seconds),
                work / *slowest, work / *fastest, ratio(Fastest(peers, "f16")).c_str(),
                ratio(Fastest(peers, "shipped")).c_str());
    std::fflush(stdout);
  };

  for (const uint32_t size : sizes) {
    const std::span<const int32_t> prompt(ids.data(), size);
    std::vector<double> seconds;
    for (Peer& peer : peers) peer.seconds.clear();
    for (int i = 0; i <= repetitions; ++i) {  // the first round warms up and is not counted
      absl::Status status;
      KvCache cache(pool);
      const double ours =
          Seconds([&] { return decoder.Prefill(prompt, &cache, logits.data()); }, &status);
      RETURN_IF_ERROR(status);
      if (i > 0) seconds.push_back(ours);
      for (Peer& peer : peers) {
        ASSIGN_OR_RETURN(const double theirs,
                         peer.AskSeconds({{"op", "prefill"}, {"tokens", size}}));
        if (i > 0) peer.seconds.push_back(theirs);
      }
    }
    row(absl::StrCat("prefill ", size), size, seconds);
    Figure speed;
    speed.figure = absl::StrCat("prefill.tokens_per_s.", size);
    speed.unit = "tokens/s";
    std::vector<double> rates;
    for (double s : seconds) rates.push_back(size / s);
    SetRuns(rates, &speed);
    figures->Add(std::move(speed));
    AddRatio(absl::StrCat("prefill.vs_llamacpp_f16.", size), 1.2, seconds, Fastest(peers, "f16"),
             size, figures);
    AddRatio(absl::StrCat("prefill.vs_llamacpp_shipped.", size), 1.2, seconds,
             Fastest(peers, "shipped"), size, figures);
  }

  for (const uint32_t context : sizes) {
    if (context < 1024 && sizes.size() > 1) continue;
    std::vector<double> seconds;
    for (Peer& peer : peers) peer.seconds.clear();
    KvCache prefix(pool);
    RETURN_IF_ERROR(
        decoder.Prefill(std::span<const int32_t>(ids.data(), context), &prefix, nullptr));
    for (int i = 0; i <= repetitions; ++i) {
      absl::Status status;
      const double ours = Seconds(
          [&] {
            for (int k = 0; k < kDecodeSteps; ++k) {
              RETURN_IF_ERROR(decoder.DecodeOne(ids[context + k], &prefix, logits.data()));
            }
            return absl::OkStatus();
          },
          &status);
      RETURN_IF_ERROR(status);
      prefix.Truncate(context);
      if (i > 0) seconds.push_back(ours);
      for (Peer& peer : peers) {
        ASSIGN_OR_RETURN(
            const double theirs,
            peer.AskSeconds({{"op", "decode"}, {"context", context}, {"steps", kDecodeSteps}}));
        if (i > 0) peer.seconds.push_back(theirs);
      }
    }
    row(absl::StrCat("decode after ", context), kDecodeSteps, seconds);
    Figure speed;
    speed.figure = absl::StrCat("decode.tokens_per_s.", context);
    speed.unit = "tokens/s";
    std::vector<double> rates;
    for (double s : seconds) rates.push_back(kDecodeSteps / s);
    SetRuns(rates, &speed);
    figures->Add(std::move(speed));
    Peer* best = Fastest(peers, "llama.cpp");
    AddRatio(absl::StrCat("decode.vs_llamacpp.", context), 0.8, seconds, best, kDecodeSteps,
             figures);
  }

  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  Figure memory;
  memory.figure = "prefill.peak_rss_bytes";
  memory.unit = "bytes";
  SetRuns({static_cast<double>(usage.ru_maxrss) * 1024}, &memory);
  double peer_peak = 0;
  for (Peer& peer : peers) {
    ASSIGN_OR_RETURN(const nlohmann::json answer, peer.Ask({{"op", "rss"}}));
    const double bytes = answer.value("peak_bytes", 0.0);
    if (peer_peak == 0 || bytes < peer_peak) {
      peer_peak = bytes;
      memory.peer = peer.name;
    }
  }
  if (peer_peak > 0) memory.peer_value = peer_peak;
  std::printf("peak memory %.0f MiB%s\n", *memory.value / (1 << 20),
              peer_peak > 0
                  ? absl::StrFormat(", %s %.0f MiB", memory.peer, peer_peak / (1 << 20)).c_str()
                  : "");
  figures->Add(std::move(memory));
  return absl::OkStatus();
}

}  // namespace sparkv::cli

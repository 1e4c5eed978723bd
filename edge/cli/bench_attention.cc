// Prefill over selected key blocks against the dense one, on texts of several kinds: what it
// visits, what it saves, and what the model then says.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/calibrate/fidelity.h"
#include "common/llm/decoder.h"
#include "edge/cli/bench.h"
#include "edge/cli/progress.h"

namespace sparkv::cli {
namespace {

constexpr uint32_t kCosineRows = 512;

struct BenchText {
  std::string kind;
  std::vector<int32_t> ids;
};

// The text's own words come last, so that what follows the context is of its kind; texts that are
// too short have the others before them.
absl::StatusOr<std::vector<BenchText>> LoadTexts(const BenchOptions& options, const Model& model,
                                                 size_t tokens) {
  std::vector<std::string> paths = options.contexts;
  std::error_code error;
  if (paths.empty()) {
    for (const auto& entry :
         std::filesystem::directory_iterator(options.scripts + "/texts/benchmark", error))
      paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
  }
  if (paths.empty()) {
    return absl::NotFoundError(absl::StrCat("no texts in ", options.scripts,
                                            "/texts/benchmark; name some with --context"));
  }
  std::vector<std::vector<int32_t>> own;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 16 << 20));
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, model.tokenizer().Encode(text, EncodeOptions{}));
    if (ids.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no tokens"));
    own.push_back(std::move(ids));
  }
  std::vector<BenchText> texts;
  for (size_t i = 0; i < own.size() && !(options.quick && i == 3); ++i) {
    std::vector<int32_t> ids = own[i];
    for (size_t j = 1; ids.size() < tokens; ++j) {
      const std::vector<int32_t>& other = own[(i + j) % own.size()];
      ids.insert(ids.begin(), other.begin(), other.end());
    }
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(tokens));
    texts.push_back({std::filesystem::path(paths[i]).stem().string(), std::move(ids)});
  }
  return texts;
}

struct SparseRun {
  double visited = 0, seconds = 0, attention_s = 0, select_s = 0;
  double cosine = 1;  // of the worst layer
  Fidelity fidelity;
};

class AttentionBench {
 public:
  AttentionBench(const BenchOptions& options, FigureFile* figures)
      : options_(options), figures_(*figures) {}

  absl::Status Run();

 private:
  absl::StatusOr<SparseRun> Prefill(const FidelityProbe& probe, Decoder* decoder);
  // The mean cosine of a layer's change to its last rows, sparse against dense on the same input
  // and cache, of the worst layer. The change is attention and the feed-forward on it.
  absl::StatusOr<double> WorstCosine(const FidelityProbe& probe, Decoder* sparse);
  absl::Status Measure(const BenchText& text, uint32_t size);
  void AddFigures(uint32_t size);

  const BenchOptions& options_;
  FigureFile& figures_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<KvPagePool> pool_;
  std::unique_ptr<Decoder> dense_;
  std::vector<AttentionOptions> settings_;
  std::vector<std::vector<SparseRun>> runs_;  // [settings][texts]
  std::vector<SparseRun> dense_runs_;         // [texts]
};

absl::StatusOr<SparseRun> AttentionBench::Prefill(const FidelityProbe& probe, Decoder* decoder) {
  SparseRun run;
  const AttentionWork before = decoder->attention_work();
  KvCache cache(pool_);
  absl::Status status;
  run.seconds =
      Seconds([&] { return decoder->Prefill(probe.context(), &cache, nullptr); }, &status);
  RETURN_IF_ERROR(status);
  const AttentionWork& after = decoder->attention_work();
  run.visited = static_cast<double>(after.visited - before.visited) /
                static_cast<double>(std::max<uint64_t>(1, after.seen - before.seen));
  run.select_s = after.select_s - before.select_s;
  run.attention_s = after.attend_s - before.attend_s + run.select_s;
  ASSIGN_OR_RETURN(run.fidelity, probe.Measure(&cache));
  return run;
}

absl::StatusOr<double> AttentionBench::WorstCosine(const FidelityProbe& probe, Decoder* sparse) {
  const ModelConfig& c = model_->config();
  const auto size = static_cast<uint32_t>(probe.context().size());
  const uint32_t n = std::min(kCosineRows, size), begin = size - n;
  std::vector<float> hidden(size_t{n} * c.d_model);
  RETURN_IF_ERROR(dense_->Embed(probe.context().subspan(begin), hidden.data()));
  double worst = 1;
  for (uint32_t layer = 0; layer + 1 < c.layers; ++layer) {
    std::vector<float> a = hidden, b = hidden;
    RETURN_IF_ERROR(dense_->Attend(layer, a.data(), begin, n, probe.exact()));
    RETURN_IF_ERROR(sparse->Attend(layer, b.data(), begin, n, probe.exact()));
    double sum = 0;
    for (size_t r = 0; r < n; ++r) {
      double ab = 0, aa = 0, bb = 0;
      for (size_t i = r * c.d_model; i < (r + 1) * c.d_model; ++i) {
        const double x = double{a[i]} - hidden[i], y = double{b[i]} - hidden[i];
        ab += x * y;
        aa += x * x;
        bb += y * y;
      }
      sum += ab / std::sqrt(std::max(aa * bb, 1e-30));
    }
    worst = std::min(worst, sum / n);
    hidden = std::move(a);
  }
  return worst;
}

absl::Status AttentionBench::Measure(const BenchText& text, uint32_t size) {
  ASSIGN_OR_RETURN(const FidelityProbe probe,
                   FidelityProbe::Create(dense_.get(), pool_, text.ids, size));
  ASSIGN_OR_RETURN(SparseRun dense, Prefill(probe, dense_.get()));
  std::printf("%-10s %-14s %7.1f%%  %8.2f %8.2f\n", text.kind.c_str(), "dense", 100.0,
              dense.seconds, dense.attention_s);
  for (size_t i = 0; i < settings_.size(); ++i) {
    Decoder sparse(model_, {.threads = options_.threads, .attention = settings_[i]});
    ASSIGN_OR_RETURN(SparseRun run, Prefill(probe, &sparse));
    ASSIGN_OR_RETURN(run.cosine, WorstCosine(probe, &sparse));
    const double saved = 1 - run.attention_s / dense.attention_s;
    std::printf("%-10s %-8s %.2f  %7.1f%%  %8.2f %8.2f  %6.3f  %6.2f  %.4f  %.5f  %.5f  %+.4f\n",
                text.kind.c_str(),
                absl::StrFormat("%.4g %.3g", settings_[i].tau, settings_[i].skip_below).c_str(),
                settings_[i].theta, 100 * run.visited, run.seconds, run.attention_s, run.select_s,
                run.visited < 1 ? saved / (1 - run.visited) : 0, run.cosine, run.fidelity.kl,
                run.fidelity.copy_kl, run.fidelity.delta_nll);
    std::fflush(stdout);
    runs_[i].push_back(run);
  }
  dense_runs_.push_back(dense);
  return absl::OkStatus();
}

void AttentionBench::AddFigures(uint32_t size) {
  std::printf("\nmean of %zu texts, %u tokens\n", dense_runs_.size(), size);
  for (size_t i = 0; i < settings_.size(); ++i) {
    const auto add = [&](const std::string& name, const std::string& unit,
                         std::optional<double> target, auto&& of) {
      std::vector<double> values;
      double sum = 0;
      for (size_t t = 0; t < runs_[i].size(); ++t) {
        values.push_back(of(runs_[i][t], dense_runs_[t]));
        sum += values.back();
      }
      const double mean = sum / static_cast<double>(values.size());
      Figure f{.figure = absl::StrCat(name, ".", size), .unit = unit};
      SetRuns(values, &f);
      f.value = mean;
      f.target = target;
      f.note = absl::StrFormat("mean of texts; tau %.4g, theta %.2f, skip below %.3g",
                               settings_[i].tau, settings_[i].theta, settings_[i].skip_below);
      if (i == 0) figures_.Add(std::move(f));  // the setting that was asked for first
      return mean;
    };
    using Run = SparseRun;
    const double visited =
        add("prefill.sparse_visited", "", 0.7, [](const Run& s, const Run&) { return s.visited; });
    const double cosine = add("prefill.sparse_worst_cosine", "", 0.99,
                              [](const Run& s, const Run&) { return s.cosine; });
    const double nll = add("prefill.sparse_dnll", "nats", 0.02,
                           [](const Run& s, const Run&) { return s.fidelity.delta_nll; });
    const double kl = add("prefill.sparse_kl", "nats", 0.02,
                          [](const Run& s, const Run&) { return s.fidelity.kl; });
    const double faster = add("prefill.sparse_vs_dense", "x", std::nullopt,
                              [](const Run& s, const Run& d) { return d.seconds / s.seconds; });
    const double attention =
        add("attention.sparse_vs_dense", "x", std::nullopt,
            [](const Run& s, const Run& d) { return d.attention_s / s.attention_s; });
    const double selector =
        add("attention.select_share_of_saved", "", 0.1, [](const Run& s, const Run& d) {
          return s.select_s / std::max(1e-9, d.attention_s - s.attention_s + s.select_s);
        });
    std::printf(
        "tau %.4g theta %.2f skip %.3g: visited %.1f%%, prefill %.2fx, attention %.2fx, selection "
        "%.1f%% of what it saves, worst layer's cosine %.4f, KL %.5f, dNLL %+.5f\n",
        settings_[i].tau, settings_[i].theta, settings_[i].skip_below, 100 * visited, faster,
        attention, 100 * selector, cosine, kl, nll);
  }
}

absl::Status AttentionBench::Run() {
  ASSIGN_OR_RETURN(model_, Model::Load(options_.model));
  const std::vector<uint32_t> sizes = options_.sizes.empty()
                                          ? std::vector<uint32_t>{options_.quick ? 4000u : 8000u}
                                          : options_.sizes;
  const uint32_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest + FidelityProbe::kTokens > model_->config().context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a size of ", longest, " tokens, the model allows ",
                     model_->config().context_length - FidelityProbe::kTokens));
  }
  const KvGeometry g = model_->config().Geometry(KvDtype::kF16);
  ASSIGN_OR_RETURN(
      pool_, KvPagePool::Create(
                 g, g.token_bytes() * 2 * (longest + FidelityProbe::kTokens + 2 * kPageTokens)));
  const AttentionOptions standard;
  const std::vector<double> taus =
      options_.taus.empty() ? std::vector<double>{standard.tau} : options_.taus;
  const std::vector<double> thetas =
      options_.thetas.empty() ? std::vector<double>{standard.theta} : options_.thetas;
  const std::vector<double> skips =
      options_.skips.empty() ? std::vector<double>{standard.skip_below} : options_.skips;
  for (const double skip : skips) {
    for (const double theta : thetas) {
      for (const double tau : taus) {
        settings_.push_back({.sparse = true,
                             .tau = static_cast<float>(tau),
                             .theta = static_cast<float>(theta),
                             .skip_below = static_cast<float>(skip)});
      }
    }
  }
  dense_ = std::make_unique<Decoder>(model_, DecoderOptions{.threads = options_.threads});
  std::printf("%s\n%-10s %-14s %8s  %8s %8s  %6s  %6s  %-6s  %-7s  %-7s  %s\n",
              MachineLine().c_str(), "text", "tau skip theta", "visited", "prefill", "attn s",
              "select", "s/(1-v)", "cosine", "KL", "copy KL", "dNLL");
  for (const uint32_t size : sizes) {
    runs_.assign(settings_.size(), {});
    dense_runs_.clear();
    ASSIGN_OR_RETURN(const std::vector<BenchText> texts,
                     LoadTexts(options_, *model_, size + FidelityProbe::kFollowing));
    for (const BenchText& text : texts) RETURN_IF_ERROR(Measure(text, size));
    AddFigures(size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunBenchAttention(const BenchOptions& options, FigureFile* figures) {
  return AttentionBench(options, figures).Run();
}

}  // namespace sparkv::cli

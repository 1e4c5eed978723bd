// Every codec on the same texts: container bytes against what the model then says, and speeds on
// one core.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/thread_pool.h"
#include "common/calibrate/fidelity.h"
#include "common/codec/column_decode.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_aatc.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_column.h"
#include "common/codec/enc_column_copy.h"
#include "common/codec/enc_profile.h"
#include "common/llm/model.h"
#include "common/llm/token_rows.h"
#include "edge/cli/bench.h"
#include "edge/cli/progress.h"
#include "kernels/gguf_gemm.h"

namespace sparkv::cli {
namespace {

constexpr double kTargetKl = 0.01;
// Steps of the profile codecs, relative to the profile's own: the quality knob.
constexpr double kSteps[] = {1.0, 0.6, 1.5};
constexpr double kRatesMbit[] = {20, 80};

// A codec as it would be stored: encoder, and one of the two decoders.
struct Contender {
  std::string name;   // of the codec
  std::string label;  // with the step where it is not the profile's own
  std::unique_ptr<ColumnEncoder> encoder;
  const BlockDecoder* blocks = nullptr;
  std::unique_ptr<ResidualDecoder> residual;
  std::shared_ptr<const CodecProfile> profile;
  bool own_step = true;
};

struct Point {
  std::string label;
  int level = 0;
  double bytes = 0, kl = 0, copy_kl = 0, top1 = 0, delta_nll = 0, worst_kl = 0, worst_copy = 0;
  int n = 0;
};

struct Text {
  std::string kind;
  std::vector<int32_t> ids;
};

class CodecBench {
 public:
  CodecBench(const BenchOptions& options, FigureFile* figures)
      : options_(options), figures_(*figures) {}
  absl::Status Run();

 private:
  absl::Status LoadTexts();
  absl::Status LoadContenders();
  absl::Status Quality(const Text& text, uint32_t size);
  absl::Status Speed();
  void AddFigures();
  absl::StatusOr<std::vector<EncodedColumn>> Encode(const Contender& c, const FidelityProbe& probe,
                                                    ThreadPool* pool, uint32_t columns) const;
  absl::Status Decode(const Contender& c, const std::vector<EncodedColumn>& columns, int planes,
                      const FidelityProbe& probe, ThreadPool* pool, KvCache* cache) const;
  TokenEmbedding Embedding() const {
    return {model_->config().d_model,
            [model = model_](std::span<const int32_t> tokens, float* out) {
              return TokenRows(*model, tokens, out);
            }};
  }

  const BenchOptions& options_;
  FigureFile& figures_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<Text> texts_;
  std::vector<uint32_t> sizes_;
  std::vector<Contender> contenders_;
  std::map<std::pair<std::string, int>, Point> points_;  // (label, level), over all texts
  std::map<std::string, double> mismatch_;               // by codec: the worst column's
};

absl::Status CodecBench::LoadTexts() {
  std::vector<std::string> paths = options_.contexts;
  if (paths.empty()) {
    std::error_code error;
    for (const auto& e :
         std::filesystem::directory_iterator(options_.scripts + "/texts/benchmark", error)) {
      if (e.path().extension() == ".txt") paths.push_back(e.path().string());
    }
    std::sort(paths.begin(), paths.end());
  }
  if (paths.empty()) {
    return absl::NotFoundError(absl::StrCat("no texts in ", options_.scripts,
                                            "/texts/benchmark; name some with --context"));
  }
  if (options_.quick && options_.contexts.empty()) paths.resize(std::min<size_t>(paths.size(), 3));
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, uint64_t{16} << 20));
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, model_->tokenizer().Encode(text, {.add_bos = true}));
    texts_.push_back({std::filesystem::path(path).stem().string(), std::move(ids)});
  }
  return absl::OkStatus();
}

absl::Status CodecBench::LoadContenders() {
  for (const std::string& name : CodecNames()) {
    Contender c;
    c.name = c.label = name;
    ASSIGN_OR_RETURN(const BlockEncoder* const encoder, FindEncoder(name));
    ASSIGN_OR_RETURN(c.blocks, FindDecoder(name));
    c.encoder = MakeColumnEncoder(encoder);
    contenders_.push_back(std::move(c));
  }
  ASSIGN_OR_RETURN(const auto profiles, BenchProfiles(options_, model_->fingerprint()));
  for (const auto& [path, profile] : profiles) {
    ASSIGN_OR_RETURN(const CodecInfo* const info, ProfileCodec(*profile));
    std::fprintf(stderr, "%s: codec %s, %.2f MB\n", path.c_str(), std::string(info->name).c_str(),
                 static_cast<double>(profile->bytes().size()) / 1e6);
    if (info->name == AatcPredInfo().name) {
      Figure f{.figure = "codec.profile_mb", .unit = "MB"};
      f.value = static_cast<double>(profile->bytes().size()) / 1e6;
      f.target = 8;
      f.n = 1;
      figures_.Add(f);
    }
    for (const double step : kSteps) {
      ASSIGN_OR_RETURN(std::string scaled,
                       WithStep(*profile, profile->shape().step * static_cast<float>(step)));
      Contender c;
      c.name = std::string(info->name);
      c.own_step = step == 1.0;
      c.label = c.own_step ? c.name : absl::StrFormat("%s, step x%.1f", c.name, step);
      ASSIGN_OR_RETURN(c.profile, CodecProfile::Parse(std::move(scaled)));
      ASSIGN_OR_RETURN(c.encoder, MakeResidualEncoder(c.profile, Embedding()));
      ASSIGN_OR_RETURN(c.residual, MakeResidualDecoder(c.profile, Embedding()));
      contenders_.push_back(std::move(c));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<EncodedColumn>> CodecBench::Encode(const Contender& c,
                                                              const FidelityProbe& probe,
                                                              ThreadPool* pool,
                                                              uint32_t columns) const {
  const auto total = static_cast<uint32_t>(probe.context().size());
  std::vector<EncodedColumn> out;
  for (uint32_t t = 0; t < std::min(columns, ColumnCount(total)); ++t) {
    ASSIGN_OR_RETURN(const ColumnCopy column, ColumnCopy::Of(probe.exact(), probe.context(), t));
    ASSIGN_OR_RETURN(EncodedColumn encoded, c.encoder->EncodeColumn(column.input(), pool));
    out.push_back(std::move(encoded));
  }
  return out;
}

absl::Status CodecBench::Decode(const Contender& c, const std::vector<EncodedColumn>& columns,
                                int planes, const FidelityProbe& probe, ThreadPool* pool,
                                KvCache* cache) const {
  const auto total = static_cast<uint32_t>(probe.context().size());
  for (uint32_t t = 0; t < columns.size(); ++t) {
    std::vector<std::vector<std::span<const uint8_t>>> blocks;
    for (const auto& block : columns[t].planes) {
      blocks.emplace_back();
      for (int p = 0; p < planes; ++p)
        blocks.back().push_back(AsBytes(block[static_cast<size_t>(p)]));
    }
    RETURN_IF_ERROR(DecodeColumn(c.blocks, c.residual.get(), blocks, t * kColumnTokens,
                                 probe.context().subspan(t * kColumnTokens, ColumnTokens(total, t)),
                                 pool, cache));
  }
  return absl::OkStatus();
}

absl::Status CodecBench::Quality(const Text& text, uint32_t size) {
  const KvGeometry g = model_->config().Geometry(KvDtype::kF16);
  ASSIGN_OR_RETURN(const auto pages,
                   KvPagePool::Create(
                       g, g.token_bytes() * 2 * (size + FidelityProbe::kTokens + 2 * kPageTokens)));
  absl::StatusOr<FidelityProbe> probe =
      FidelityProbe::Create(decoder_.get(), pages, text.ids, size);
  if (!probe.ok()) {
    return absl::Status(probe.status().code(),
                        absl::StrCat(text.kind, ": ", probe.status().message()));
  }
  KvCache cache(pages);
  RETURN_IF_ERROR(cache.Extend(size));
  for (const Contender& c : contenders_) {
    ASSIGN_OR_RETURN(const auto columns, Encode(c, *probe, pool_.get(), ~0u));
    if (c.own_step && c.residual != nullptr && c.residual->predicts()) {
      double& worst = mismatch_[c.name];
      for (const EncodedColumn& column : columns) worst = std::max(worst, column.base_mismatch);
    }
    if (c.residual != nullptr) {
      std::vector<uint16_t> k(size_t{size} * g.row()), v(k.size());
      RETURN_IF_ERROR(probe->exact().ExportBlock(0, 0, size, k.data(), v.data()));
      cache.ImportBlock(0, 0, size, k.data(), v.data());
    }
    for (const CodecLevel& level : c.encoder->info().levels) {
      // Further planes of another step tell nothing that the profile's own don't.
      if (!c.own_step && level.planes > 1) break;
      RETURN_IF_ERROR(Decode(c, columns, level.planes, *probe, pool_.get(), &cache));
      ASSIGN_OR_RETURN(const Fidelity f, probe->Measure(&cache));
      double bytes = 0;
      for (uint32_t t = 0; t < columns.size(); ++t) {
        // What a column costs beside its items: prelude, index, attention blocks, checksum.
        bytes +=
            static_cast<double>(kColumnPreludeBytes + 4 + uint64_t{2} * g.layers * g.kv_heads) +
            8.0 * g.layers * c.encoder->info().planes;
        for (const auto& block : columns[t].planes) {
          for (int p = 0; p < level.planes; ++p) {
            bytes += static_cast<double>(block[static_cast<size_t>(p)].size());
          }
        }
      }
      bytes /= size;
      Point& point = points_[{c.label, level.level}];
      point.label = c.label;
      point.level = level.level;
      ++point.n;
      point.bytes += bytes;
      point.kl += f.kl;
      point.copy_kl += f.copy_kl;
      point.top1 += f.top1;
      point.delta_nll += f.delta_nll;
      point.worst_kl = std::max(point.worst_kl, f.kl);
      point.worst_copy = std::max(point.worst_copy, f.copy_kl);
      std::printf("%-10s %5u  %-22s %3d  %7.0f  %5.1fx  %.5f  %.5f  %.4f  %+.4f\n",
                  text.kind.c_str(), size, c.label.c_str(), level.level, bytes,
                  static_cast<double>(g.token_bytes()) / bytes, f.kl, f.copy_kl, f.top1,
                  f.delta_nll);
    }
  }
  return absl::OkStatus();
}

// Bytes at the target KL between the two measured points that bracket it; nullopt: none do.
std::optional<double> BytesAtTarget(std::vector<const Point*> points) {
  std::sort(points.begin(), points.end(),
            [](const Point* a, const Point* b) { return a->bytes < b->bytes; });
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const Point &a = *points[i], &b = *points[i + 1];
    if (a.kl <= kTargetKl || b.kl > kTargetKl) continue;
    const double part = std::log(a.kl / kTargetKl) / std::log(a.kl / b.kl);
    return a.bytes + part * (b.bytes - a.bytes);
  }
  return std::nullopt;
}

void CodecBench::AddFigures() {
  for (auto& [key, p] : points_) {
    for (double* sum : {&p.bytes, &p.kl, &p.copy_kl, &p.top1, &p.delta_nll}) *sum /= p.n;
  }
  std::printf("\nmean of all texts and sizes\n%-22s %3s  %7s  %6s  %-8s %-8s %-8s %-8s %-7s %s\n",
              "codec", "lvl", "B/token", "ratio", "KL", "worst", "copy KL", "worst", "top-1",
              "dNLL");
  const auto f16 = static_cast<double>(model_->config().Geometry(KvDtype::kF16).token_bytes());
  std::map<std::string, std::vector<const Point*>> by_codec;
  for (const Contender& c : contenders_) {
    for (const CodecLevel& level : c.encoder->info().levels) {
      const auto it = points_.find({c.label, level.level});
      if (it == points_.end()) continue;
      const Point& p = it->second;
      by_codec[c.name].push_back(&p);
      std::printf("%-22s %3d  %7.0f  %5.1fx  %.6f %.6f %.6f %.6f %.4f  %+.4f\n", c.label.c_str(),
                  p.level, p.bytes, f16 / p.bytes, p.kl, p.worst_kl, p.copy_kl, p.worst_copy,
                  p.top1, p.delta_nll);
      if (!c.own_step) continue;
      const std::string name = absl::StrCat(c.name, ".level", p.level);
      for (const auto& [what, unit, value] : {std::tuple{"bytes_per_token", "B", p.bytes},
                                              {"kl", "nats", p.kl},
                                              {"copy_kl", "nats", p.copy_kl},
                                              {"top1", "", p.top1},
                                              {"delta_nll", "nats", p.delta_nll}}) {
        Figure f{.figure = absl::StrCat("codec.", what, ".", name), .unit = unit};
        f.value = value;
        f.n = p.n;
        figures_.Add(f);
      }
    }
  }
  for (const auto& [name, worst] : mismatch_) {
    Figure f{.figure = absl::StrCat("codec.base_mismatch.", name), .unit = ""};
    f.value = worst;
    f.target = kMaxBaseMismatch;
    f.note = "worst column: error of a computed base over the codec's own, mean squares";
    f.n = 1;
    figures_.Add(f);
    std::printf("%s: a computed base adds %.2f of the codec's own error (worst column)\n",
                name.c_str(), worst);
  }
  std::map<std::string, std::optional<double>> at_target;
  std::printf("\nbytes a token at KL %.2f, between the two measured points around it\n", kTargetKl);
  for (const auto& [name, points] : by_codec) {
    const auto bytes = BytesAtTarget(points);
    at_target[name] = bytes;
    Figure f{.figure = absl::StrCat("codec.bytes_per_token_at_kl_0.01.", name), .unit = "B"};
    f.value = bytes;
    f.n = points.front()->n;
    if (name == "cachegen") f.target = 5300;
    if (name == "aatc") f.target = 3000;
    if (name == "aatc-pred") f.target = 1900;
    if (!bytes) f.note = "no two measured levels bracket KL 0.01";
    std::printf("  %-14s %s\n", name.c_str(),
                bytes ? absl::StrFormat("%6.0f", *bytes).c_str() : "not bracketed");
    figures_.Add(f);
  }
  Figure f{.figure = "codec.ratio_vs_cachegen_at_kl_0.01", .unit = "x", .peer = "cachegen"};
  f.target = 2.0;
  if (at_target["cachegen"] && at_target["aatc-pred"]) {
    f.value = *at_target["cachegen"] / *at_target["aatc-pred"];
    f.peer_value = at_target["cachegen"];
    f.n = points_.begin()->second.n;
    std::printf("  cachegen / aatc-pred  %.2fx\n", *f.value);
  } else {
    f.note = "one of the two is not bracketed, or has no profile";
  }
  figures_.Add(f);
}

absl::Status CodecBench::Speed() {
  constexpr uint32_t kSize = 2048;
  const int runs = options_.repetitions > 0 ? options_.repetitions : options_.quick ? 3 : 7;
  const KvGeometry g = model_->config().Geometry(KvDtype::kF16);
  ASSIGN_OR_RETURN(const auto pages, KvPagePool::Create(g, g.token_bytes() * 2 * (kSize + 512)));
  ASSIGN_OR_RETURN(const FidelityProbe probe,
                   FidelityProbe::Create(decoder_.get(), pages, texts_[0].ids, kSize));
  KvCache cache(pages);
  RETURN_IF_ERROR(cache.Extend(kSize));
  std::vector<uint16_t> k0(size_t{kSize} * g.row()), v0(k0.size());
  RETURN_IF_ERROR(probe.exact().ExportBlock(0, 0, kSize, k0.data(), v0.data()));
  const double column_mb = static_cast<double>(g.token_bytes()) * kColumnTokens / 1e6;

  // What the products of a finish could do at most: the GEMM alone at its shapes, f32 on one core.
  std::vector<double> gflops;
  {
    const uint32_t n = 192, rows = kFinishRows;
    const size_t ld = kernels::GemmStride(n);
    std::vector<float> x(rows * ld, 0.5f), y(size_t{rows} * n), w(size_t{n} * n, 0.25f),
        scratch(kernels::GemmScratchFloats(kernels::GgmlType::kF32, n));
    for (int i = 0; i < runs; ++i) {
      absl::Status status;
      const double s = Seconds(
          [&]() -> absl::Status {
            for (int r = 0; r < 200; ++r) {
              RETURN_IF_ERROR(kernels::GgufGemm({.type = kernels::GgmlType::kF32,
                                                 .w = w.data(),
                                                 .columns = n,
                                                 .k = n,
                                                 .x = x.data(),
                                                 .ldx = ld,
                                                 .m = rows,
                                                 .y = y.data(),
                                                 .ldy = n},
                                                0, n, scratch.data()));
            }
            return absl::OkStatus();
          },
          &status);
      RETURN_IF_ERROR(status);
      gflops.push_back(200.0 * 2 * rows * n * n / s / 1e9);
    }
  }
  std::printf(
      "\nspeed on one core, a column of %u tokens, f16 MB (GEMM %.0f GFLOP/s)\n%-14s %10s %10s "
      "%10s",
      kColumnTokens, *Median(gflops), "codec", "encode", "finish", "limit");
  for (const double rate : kRatesMbit) std::printf("  share at %2.0f Mbit/s", rate);
  std::printf("\n");
  for (const Contender& c : contenders_) {
    if (!c.own_step) continue;
    cache.ImportBlock(0, 0, kSize, k0.data(), v0.data());
    std::vector<double> encode, finish;
    absl::Status status;
    absl::StatusOr<std::vector<EncodedColumn>> columns;
    int planes = 0;
    for (const CodecLevel& l : c.encoder->info().levels) {
      if (l.level == c.encoder->info().default_level) planes = l.planes;
    }
    for (int i = 0; i < runs; ++i) {
      encode.push_back(column_mb / Seconds(
                                       [&] {
                                         columns = Encode(c, probe, nullptr, 1);
                                         return columns.status();
                                       },
                                       &status));
      RETURN_IF_ERROR(status);
      finish.push_back(
          column_mb /
          Seconds([&] { return Decode(c, *columns, planes, probe, nullptr, &cache); }, &status));
      RETURN_IF_ERROR(status);
    }
    double bytes = 0;
    for (const auto& block : (*columns)[0].planes) {
      for (int p = 0; p < planes; ++p)
        bytes += static_cast<double>(block[static_cast<size_t>(p)].size());
    }
    std::optional<double> limit;
    if (c.profile != nullptr) {
      const ProfileShape& s = c.profile->shape();
      const double wide = 2.0 * s.row();
      // The token part is made once for each token that occurs.
      const auto context = probe.context().first(kColumnTokens);
      const double distinct =
          static_cast<double>(std::set<int32_t>(context.begin(), context.end()).size()) /
          kColumnTokens;
      double flops = 2 * wide * (s.group + s.rank_below + s.rank_token * distinct);
      if (s.projects_below()) flops += 2 * wide * s.rank_below;
      limit = *Median(gflops) * 1e9 / flops * 2 * wide / 1e6;
    }
    const double need = c.name == "generic"     ? 400
                        : c.name == "aatc"      ? 150
                        : c.name == "aatc-pred" ? 60
                                                : 0;
    Figure f{.figure = absl::StrCat("codec.finish_mb_per_s.", c.name), .unit = "MB/s"};
    SetRuns(finish, &f);
    f.limit = limit;
    if (need > 0) f.target = need;
    figures_.Add(f);
    Figure e{.figure = absl::StrCat("codec.encode_mb_per_s.", c.name), .unit = "MB/s"};
    SetRuns(encode, &e);
    if (c.name == "generic") e.target = 60;
    if (c.name == "aatc-pred") e.target = 30;
    figures_.Add(e);
    std::printf("%-14s %10.0f %10.0f %10s", c.name.c_str(), *e.value, *f.value,
                limit ? absl::StrFormat("%.0f", *limit).c_str() : "");
    for (const double rate : kRatesMbit) {
      const double link = bytes * 8 / (rate * 1e6), own = column_mb / *f.value;
      Figure share{.figure = absl::StrFormat("codec.decode_share.%.0fmbit.%s", rate, c.name),
                   .unit = ""};
      share.value = own / (link + own);
      share.n = runs;
      share.note = "decode and finish on one core, of that plus the transfer";
      figures_.Add(share);
      std::printf("  %17.1f %%", 100 * *share.value);
    }
    std::printf("\n");
    if (c.name != "aatc-pred" && !(c.name == "generic" && contenders_.back().residual == nullptr))
      continue;
    // Entropy decoding alone.
    const BlockShape shape{g.kv_heads, kColumnTokens, g.head_dim};
    std::vector<double> symbols;
    for (int i = 0; i < runs && c.residual != nullptr; ++i) {
      const double s = Seconds(
          [&]() -> absl::Status {
            for (uint32_t l = 1; l < g.layers; ++l) {
              std::vector<std::span<const uint8_t>> views;
              for (int p = 0; p < planes; ++p) {
                views.push_back(AsBytes((*columns)[0].planes[l][static_cast<size_t>(p)]));
              }
              RETURN_IF_ERROR(c.residual->Read(l, shape, views).status());
            }
            return absl::OkStatus();
          },
          &status);
      RETURN_IF_ERROR(status);
      symbols.push_back(2.0 * static_cast<double>(shape.elements()) * (g.layers - 1) * planes / s /
                        1e6);
    }
    Figure r{.figure = "codec.decode_msymbols_per_s", .unit = "M/s"};
    r.target = 300;
    if (symbols.empty()) {
      r.note = "needs a profile";
    } else {
      SetRuns(symbols, &r);
      std::printf("entropy decoding of aatc-pred: %.0f M symbols/s\n", *r.value);
    }
    figures_.Add(r);
  }
  return absl::OkStatus();
}

absl::Status CodecBench::Run() {
  ASSIGN_OR_RETURN(model_, Model::Load(options_.model));
  decoder_ = std::make_unique<Decoder>(model_, DecoderOptions{.threads = options_.threads});
  pool_ = std::make_unique<ThreadPool>(std::max(
      1, options_.threads > 0 ? options_.threads - 1
                              : static_cast<int>(std::thread::hardware_concurrency()) - 1));
  RETURN_IF_ERROR(LoadTexts());
  RETURN_IF_ERROR(LoadContenders());
  sizes_ = options_.sizes;
  if (sizes_.empty())
    sizes_ = options_.quick ? std::vector<uint32_t>{2048} : std::vector<uint32_t>{2048, 4096};
  std::printf("%s\n%-10s %5s  %-22s %3s  %7s  %6s  %-8s %-8s %-7s %s\n", MachineLine().c_str(),
              "text", "size", "codec", "lvl", "B/token", "ratio", "KL", "copy KL", "top-1", "dNLL");
  if (options_.part == "speed") return Speed();
  Progress progress("codecs", "texts", /*quiet=*/false);
  uint64_t done = 0;
  for (const uint32_t size : sizes_) {
    for (const Text& text : texts_) {
      progress.Clear();
      RETURN_IF_ERROR(Quality(text, size));
      progress.Update(++done, texts_.size() * sizes_.size());
    }
  }
  AddFigures();
  return options_.part == "quality" ? absl::OkStatus() : Speed();
}

}  // namespace

absl::Status RunBenchCodec(const BenchOptions& options, FigureFile* figures) {
  return CodecBench(options, figures).Run();
}

}  // namespace sparkv::cli

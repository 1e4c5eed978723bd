// TTFT of every policy over a shaped link: real daemons as child processes, real TCP through the
// daemon's relay, repetitions interleaved so that a slow minute of the machine hits every policy
// alike.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/codec/dec_aatc.h"
#include "common/llm/model.h"
#include "common/rpc/status_conv.h"
#include "edge/cli/bench.h"
#include "edge/cli/progress.h"
#include "sparkv/v1/edge.grpc.pb.h"

namespace sparkv::cli {
namespace {

constexpr char kQuestion[] = "What happened to the computer when the switch was flipped?";

struct PolicyRow {
  v1::Policy policy;
  const char* name;
};
constexpr PolicyRow kPolicies[] = {{v1::POLICY_SPARKV, "sparkv"},
                                   {v1::POLICY_CAKE, "cake"},
                                   {v1::POLICY_STREAM, "stream"},
                                   {v1::POLICY_LOCAL, "local"}};

// A server or an edge daemon and what speaks to it.
struct Daemon {
  std::unique_ptr<Subprocess> process;
  std::string address;
};

absl::StatusOr<Daemon> StartDaemon(std::vector<std::string> argv, const std::string& log) {
  Daemon daemon;
  ASSIGN_OR_RETURN(daemon.process, Subprocess::Start(argv, log));
  absl::StatusOr<std::string> address =
      daemon.process->ReadUntil("listening on ", absl::Minutes(2));
  if (!address.ok()) {
    return absl::UnavailableError(
        absl::StrCat(argv[0], " did not start; its messages are in ", log));
  }
  daemon.address = *std::move(address);
  return daemon;
}

class EdgeClient {
 public:
  explicit EdgeClient(const std::string& address)
      : stub_(v1::Edge::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
  }

  absl::StatusOr<v1::EdgeContext> Add(const std::string& name, const std::string& text,
                                      const std::string& codec) {
    grpc::ClientContext context;
    v1::AddContextRequest request;
    request.set_name(name);
    request.set_text(text);
    request.set_codec(codec);
    auto reader = stub_->AddContext(&context, request);
    v1::AddContextResponse response;
    v1::EdgeContext done;
    Progress progress("precompute", "tokens", /*quiet=*/false);
    while (reader->Read(&response)) {
      progress.Update(response.tokens_done(), response.tokens_total(), response.seconds_left());
      if (response.has_done()) done = response.done();
    }
    RETURN_IF_ERROR(FromGrpc(reader->Finish()));
    if (!done.on_server()) return absl::UnavailableError("the server did not store the context");
    return done;
  }

  absl::StatusOr<v1::GenerateResponse::Result> Ask(const std::string& name, v1::Policy policy,
                                                   uint32_t level) {
    grpc::ClientContext context;
    v1::GenerateRequest request;
    request.set_context(name);
    request.set_question(kQuestion);
    request.set_max_tokens(1);
    request.set_policy(policy);
    request.set_level(level);
    request.set_drop_loaded(true);
    request.set_ignore_eos(true);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    v1::GenerateResponse::Result result;
    bool ended = false;
    while (reader->Read(&response)) {
      if (!response.has_result()) continue;
      result = response.result();
      ended = true;
    }
    RETURN_IF_ERROR(FromGrpc(reader->Finish()));
    if (!ended) return absl::InternalError("the daemon ended without a result");
    for (const std::string& reason : result.degraded()) {
      std::fprintf(stderr, "  degraded: %s\n", reason.c_str());
    }
    return result;
  }

 private:
  std::unique_ptr<v1::Edge::Stub> stub_;
};

// The beginning of the document, repeated as needed, that is `tokens` tokens long.
absl::StatusOr<std::string> CutDocument(const Tokenizer& tokenizer, const std::string& document,
                                        uint32_t tokens) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> once, tokenizer.Encode(document, {}));
  if (once.empty()) return absl::InvalidArgumentError("the benchmark's document has no tokens");
  std::vector<int32_t> ids;
  while (ids.size() < tokens) ids.insert(ids.end(), once.begin(), once.end());
  ids.resize(tokens);
  std::string text = tokenizer.Decode(ids);
  // A token may end inside a character.
  size_t end = text.size();
  while (end > 0 && (static_cast<unsigned char>(text[end - 1]) & 0xC0) == 0x80) --end;
  if (end > 0 && static_cast<unsigned char>(text[end - 1]) >= 0xC0) text.resize(end - 1);
  return text;
}

class LoadBench {
 public:
  LoadBench(const BenchOptions& options, FigureFile* figures)
      : options_(options), figures_(figures) {}

  absl::Status Run() {
    std::error_code error;
    folder_ =
        std::filesystem::temp_directory_path(error) / absl::StrCat("sparkv-bench-", ::getpid());
    if (error) return absl::InvalidArgumentError(absl::StrCat("TMPDIR: ", error.message()));
    std::filesystem::create_directories(folder_, error);
    const absl::Status status = RunIn();
    server_.process.reset();
    if (status.ok()) std::filesystem::remove_all(folder_, error);
    return status;
  }

 private:
  absl::Status RunIn() {
    ASSIGN_OR_RETURN(const std::string document, BenchDocument(options_));
    ASSIGN_OR_RETURN(model_, Model::Load(options_.model));
    std::vector<std::string> server = {SiblingProgram("sparkv-server"),
                                       "--listen",
                                       "127.0.0.1:0",
                                       "--insecure",
                                       "--model",
                                       options_.model,
                                       "--data-dir",
                                       (folder_ / "server").string(),
                                       "--threads",
                                       absl::StrCat(options_.threads)};
    // Named, so that the edge waits for the profile instead of adding the context as generic.
    codec_ = options_.codec;
    ASSIGN_OR_RETURN(const auto profiles, BenchProfiles(options_, model_->fingerprint()));
    for (const auto& [path, profile] : profiles) {
      server.insert(server.end(), {"--profile", path});
      ASSIGN_OR_RETURN(const CodecInfo* const info, ProfileCodec(*profile));
      if (options_.codec.empty() && info->name == AatcPredInfo().name) codec_ = info->name;
    }
    ASSIGN_OR_RETURN(server_, StartDaemon(server, (folder_ / "server.log").string()));
    std::vector<uint32_t> sizes = options_.sizes;
    if (sizes.empty())
      sizes = options_.quick ? std::vector<uint32_t>{2048} : std::vector<uint32_t>{2048, 4096};
    const int repetitions = options_.repetitions > 0 ? options_.repetitions
                            : options_.quick         ? 3
                                                     : 5;
    std::printf("%s\n", MachineLine().c_str());
    for (const uint32_t size : sizes) RETURN_IF_ERROR(RunSize(document, size, repetitions));
    return absl::OkStatus();
  }

  // folder: of the edge's data. mbit 0: the link is not shaped.
  absl::StatusOr<Daemon> StartEdge(double mbit, const std::string& folder = "edge") {
    std::vector<std::string> argv = {SiblingProgram("sparkv-edge"),
                                     "--listen",
                                     "127.0.0.1:0",
                                     "--insecure",
                                     "--model",
                                     options_.model,
                                     "--server",
                                     server_.address,
                                     "--data-dir",
                                     (folder_ / folder).string(),
                                     "--profile-wait",
                                     "60s",
                                     "--threads",
                                     absl::StrCat(options_.threads)};
    if (mbit > 0) {
      for (const std::string& flag :
           {std::string("--link-mbit"), absl::StrFormat("%.4f", mbit), std::string("--link-rtt-ms"),
            absl::StrFormat("%.3f", options_.rtt_ms)}) {
        argv.push_back(flag);
      }
    }
    return StartDaemon(argv, (folder_ / (folder + ".log")).string());
  }

  absl::Status RunSize(const std::string& document, uint32_t size, int repetitions) {
    const std::string name = absl::StrCat("bench-", size);
    uint64_t bytes = 0;
    uint32_t tokens = 0;
    std::vector<double> local;
    {
      ASSIGN_OR_RETURN(Daemon edge, StartEdge(0));
      EdgeClient client(edge.address);
      ASSIGN_OR_RETURN(const std::string text, CutDocument(model_->tokenizer(), document, size));
      ASSIGN_OR_RETURN(const v1::EdgeContext added, client.Add(name, text, codec_));
      tokens = added.tokens();
      codec_ = added.codec();
      // The level in use decides the bytes; the first load tells them.
      ASSIGN_OR_RETURN(const auto streamed, client.Ask(name, v1::POLICY_STREAM, options_.level));
      bytes = streamed.usage().bytes_fetched();
      for (int i = 0; i <= repetitions; ++i) {
        ASSIGN_OR_RETURN(const auto result, client.Ask(name, v1::POLICY_LOCAL, options_.level));
        if (i > 0) local.push_back(result.ttft().total_ms());
      }
    }
    if (bytes == 0)
      return absl::UnavailableError(
          "stream policy fetched nothing; see the degraded reasons above");
    const double balanced = static_cast<double>(bytes) * 8e-6 / (*Median(local) / 1000.0);
    std::printf(
        "\n%u tokens, codec %s, %.0f bytes/token, local %.0f ms, balanced rate %.2f Mbit/s, RTT "
        "%.0f ms\n",
        tokens, codec_.c_str(), static_cast<double>(bytes) / tokens, *Median(local), balanced,
        options_.rtt_ms);
    std::printf("%-12s %9s %9s %9s %9s   %s\n", "Mbit/s", "sparkv", "cake", "stream", "local",
                "best single / sparkv");
    std::vector<std::pair<std::string, double>> rates = {{"balanced", balanced}};
    if (!options_.quick) {
      rates.insert(rates.begin(), {"quarter", balanced / 4});
      rates.push_back({"4x", balanced * 4});
      rates.push_back({"16x", balanced * 16});
    }
    for (const double rate : options_.rates_mbit)
      rates.push_back({absl::StrFormat("%gmbit", rate), rate});
    for (const auto& [label, rate] : rates)
      RETURN_IF_ERROR(RunRate(name, size, label, rate, repetitions));
    return RunCold(name, size, balanced, repetitions);
  }

  // The first load on a new edge: it looks the context up and, where the codec needs one, waits
  // for the model profile.
  absl::Status RunCold(const std::string& name, uint32_t size, double mbit, int repetitions) {
    std::vector<double> total, waited;
    uint64_t profile_bytes = 0;
    for (int i = 0; i < repetitions; ++i) {
      const std::string folder = absl::StrCat("cold-", size, "-", i);
      ASSIGN_OR_RETURN(Daemon edge, StartEdge(mbit, folder));
      ASSIGN_OR_RETURN(const auto result,
                       EdgeClient(edge.address).Ask(name, v1::POLICY_SPARKV, options_.level));
      total.push_back(result.ttft().total_ms());
      waited.push_back(result.ttft().profile_ms());
      profile_bytes = result.usage().profile_bytes();
    }
    std::printf("first load on a new edge: %.0f ms, %.0f of them for a profile of %.2f MB\n",
                *Median(total), *Median(waited), static_cast<double>(profile_bytes) / 1e6);
    Figure figure;
    figure.figure = absl::StrCat("load.cold_edge.", size);
    figure.unit = "ms";
    figure.note = absl::StrFormat(
        "TTFT of sparkv at %.2f Mbit/s with nothing here, %.0f ms of it waiting for the profile",
        mbit, *Median(waited));
    SetRuns(total, &figure);
    if (!cold_measured_) {
      Figure first = figure;
      first.figure = "load.cold_edge";
      figures_->Add(std::move(first));
      cold_measured_ = true;
    }
    figures_->Add(std::move(figure));
    return absl::OkStatus();
  }

  absl::Status RunRate(const std::string& name, uint32_t size, const std::string& label,
                       double mbit, int repetitions) {
    ASSIGN_OR_RETURN(Daemon edge, StartEdge(mbit));
    EdgeClient client(edge.address);
    std::map<std::string, std::vector<double>> runs;
    for (int i = 0; i <= repetitions; ++i) {  // the first round warms up and is not counted
      for (const PolicyRow& policy : kPolicies) {
        ASSIGN_OR_RETURN(const auto result, client.Ask(name, policy.policy, options_.level));
        if (i > 0) runs[policy.name].push_back(result.ttft().total_ms());
      }
    }
    const bool stream_wins = *Median(runs["stream"]) < *Median(runs["local"]);
    const std::vector<double>& single = stream_wins ? runs["stream"] : runs["local"];
    std::vector<double> ratios;
    std::vector<double> cake_ratios;
    for (int i = 0; i < repetitions; ++i) {
      ratios.push_back(single[i] / runs["sparkv"][i]);
      cake_ratios.push_back(runs["cake"][i] / runs["sparkv"][i]);
    }
    std::printf("%-12s %6.0f ms %6.0f ms %6.0f ms %6.0f ms   %.2fx (%.2f-%.2f)\n",
                absl::StrFormat("%.2f", mbit).c_str(), *Median(runs["sparkv"]),
                *Median(runs["cake"]), *Median(runs["stream"]), *Median(runs["local"]),
                *Median(ratios), *std::min_element(ratios.begin(), ratios.end()),
                *std::max_element(ratios.begin(), ratios.end()));
    std::fflush(stdout);
    for (const PolicyRow& policy : kPolicies) {
      Figure figure;
      figure.figure = absl::StrCat("load.ttft_ms.", policy.name, ".", label, ".", size);
      figure.unit = "ms";
      figure.note = absl::StrFormat("%.2f Mbit/s, RTT %.0f ms", mbit, options_.rtt_ms);
      SetRuns(runs[policy.name], &figure);
      figures_->Add(std::move(figure));
    }
    Figure ratio;
    ratio.figure = absl::StrCat("load.vs_best_single.", label, ".", size);
    ratio.unit = "x";
    ratio.peer = stream_wins ? "stream" : "local";
    ratio.peer_value = *Median(single) / 1000;
    if (label == "balanced") ratio.target = 1.5;
    ratio.note =
        absl::StrFormat("%.2f Mbit/s, RTT %.0f ms; peer_value in seconds", mbit, options_.rtt_ms);
    SetRuns(ratios, &ratio);
    figures_->Add(std::move(ratio));
    Figure cake;
    cake.figure = absl::StrCat("load.vs_cake.", label, ".", size);
    cake.unit = "x";
    cake.peer = "cake";
    cake.peer_value = *Median(runs["cake"]) / 1000;
    SetRuns(cake_ratios, &cake);
    figures_->Add(std::move(cake));
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  FigureFile* figures_;
  std::filesystem::path folder_;
  std::shared_ptr<const Model> model_;  // for its tokenizer
  Daemon server_;
  std::string codec_;  // asked for; once a context was added: its own
  bool cold_measured_ = false;
};

}  // namespace

absl::Status RunBenchLoad(const BenchOptions& options, FigureFile* figures) {
  return LoadBench(options, figures).Run();
}

}  // namespace sparkv::cli

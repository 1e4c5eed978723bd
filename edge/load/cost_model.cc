#include "edge/load/cost_model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

constexpr uint32_t kRows = 256;
constexpr uint32_t kHistory = 1792;
constexpr int kRuns = 3;

absl::StatusOr<double> Fastest(const std::function<absl::Status()>& fn) {
  double best = 1e9;
  for (int i = 0; i <= kRuns; ++i) {
    const absl::Duration begin = RealClock().Now();
    RETURN_IF_ERROR(fn());
    if (i > 0) best = std::min(best, absl::ToDoubleSeconds(RealClock().Now() - begin));
  }
  return best;
}

class NoSink final : public RowSink {
 public:
  void Write(uint32_t, uint32_t, const float*, const float*, size_t) override {}
};

}  // namespace

absl::StatusOr<ComputeCosts> MeasureComputeCosts(BlockCompute* compute,
                                                 std::shared_ptr<KvPagePool> pool,
                                                 uint32_t vocabulary) {
  KvCache cache(std::move(pool));
  RETURN_IF_ERROR(cache.Extend(kHistory + kRows));
  std::vector<int32_t> tokens(kRows);
  for (uint32_t i = 0; i < kRows; ++i)
    tokens[i] = static_cast<int32_t>(i % std::max(1u, vocabulary));
  std::vector<float> hidden(size_t{kRows} * compute->d_model());
  RETURN_IF_ERROR(compute->Embed(tokens, hidden.data()));
  const std::vector<float> input = hidden;
  // Real K, V everywhere: undefined bytes may be NaN or denormal, which cost other times.
  for (uint32_t begin = 0; begin < kHistory + kRows; begin += kRows) {
    RETURN_IF_ERROR(compute->Project(0, input.data(), begin, kRows, &cache));
  }
  const auto attend = [&](uint32_t begin, uint32_t rows) {
    hidden = input;
    return compute->Attend(0, hidden.data(), begin, rows, cache, 0);
  };
  ASSIGN_OR_RETURN(const double project,
                   Fastest([&] { return compute->Project(0, input.data(), 0, kRows, &cache); }));
  ASSIGN_OR_RETURN(const double near, Fastest([&] { return attend(0, kRows); }));
  ASSIGN_OR_RETURN(const double far, Fastest([&] { return attend(kHistory, kRows); }));
  constexpr uint32_t kFew = 8, kMany = 64;
  const auto query = [&](uint32_t rows) {
    return Fastest([&, rows]() -> absl::Status {
      RETURN_IF_ERROR(compute->Project(0, input.data(), 0, rows, &cache));
      return attend(0, rows);
    });
  };
  ASSIGN_OR_RETURN(const double few, query(kFew));
  ASSIGN_OR_RETURN(const double many, query(kMany));

  ComputeCosts costs;
  costs.proj_row = project / kRows;
  costs.attend_row_key = std::max(1e-12, (far - near) / (static_cast<double>(kRows) * kHistory));
  costs.dense_row = std::max(1e-9, near / kRows - costs.attend_row_key * (kRows + 1) / 2.0);
  costs.query_row = std::max(0.0, (many - few) / (kMany - kFew));
  costs.query_layer = std::max(0.0, few - kFew * costs.query_row);
  return costs;
}

absl::StatusOr<double> MeasureFinalRow(const ResidualDecoder& decoder, const KvGeometry& geometry,
                                       BlockCompute* compute) {
  if (geometry.layers < 2) return 0.0;
  const std::vector<int32_t> tokens(2 * kRows, 0);
  ASSIGN_OR_RETURN(const std::unique_ptr<ColumnChain> chain, decoder.Begin(0, tokens));
  const std::vector<float> rows(size_t{kRows} * geometry.row());
  for (uint32_t begin = 0; begin < tokens.size(); begin += kRows) {
    decoder.Restart(chain.get(), begin, kRows, rows.data(), rows.data(), geometry.row());
  }
  BlockResidual residual;
  residual.planes = 1;
  residual.symbols.resize(size_t{2} * geometry.row() * tokens.size());
  NoSink sink;
  ASSIGN_OR_RETURN(const double seconds, Fastest([&]() -> absl::Status {
                     absl::Mutex mutex;
                     absl::Status status;
                     compute->ParallelRows(static_cast<uint32_t>(tokens.size()), kFinishRows,
                                           [&](uint32_t begin, uint32_t end) {
                                             const absl::Status s = decoder.Finish(
                                                 residual, 1, begin, end, chain.get(), &sink);
                                             absl::MutexLock lock(&mutex);
                                             status.Update(s);
                                           });
                     return status;
                   }));
  return seconds / static_cast<double>(tokens.size());
}

}  // namespace sparkv

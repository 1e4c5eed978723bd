// The figures that benchmarks write: one JSON object each, with names that stay stable between
// commits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sparkv::cli {

struct Figure {
  std::string figure;  // dotted stable name
  std::string unit;
  std::optional<double> value;  // median of paired runs; nullopt: could not be measured, see note
  std::string peer;             // empty: none
  std::optional<double> peer_value;
  std::optional<double> limit;  // bound computed or measured in the same run
  std::optional<double> target;
  int n = 0;  // runs
  std::optional<double> min;
  std::optional<double> max;
  std::string note;
};

// Median of values (mean of the middle two); nullopt for none.
std::optional<double> Median(std::vector<double> values);

// Fills value, n, min and max from paired runs.
void SetRuns(const std::vector<double>& values, Figure* figure);

// Collects figures and writes them as a JSON array, with commit and machine added to each.
class FigureFile {
 public:
  void Add(Figure figure) { figures_.push_back(std::move(figure)); }
  const std::vector<Figure>& figures() const { return figures_; }
  std::string ToJson() const;
  // Unavailable when the path cannot be written.
  absl::Status Write(const std::string& path) const;

 private:
  std::vector<Figure> figures_;
};

// "AMD EPYC, 2 cores, 24 GiB, load 0.12": what the figures were measured on.
std::string MachineLine();

}  // namespace sparkv::cli

#include "edge/cli/figures.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/file.h"
#include "sparkv_build_info.h"

namespace sparkv::cli {
namespace {

nlohmann::json OrNull(const std::optional<double>& value) {
  return value.has_value() ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void SetRuns(const std::vector<double>& values, Figure* figure) {
  figure->value = Median(values);
  figure->n = static_cast<int>(values.size());
  if (values.empty()) return;
  figure->min = *std::min_element(values.begin(), values.end());
  figure->max = *std::max_element(values.begin(), values.end());
}

std::string FigureFile::ToJson() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const std::string machine = MachineLine();
  for (const Figure& f : figures_) {
    nlohmann::ordered_json row;
    row["figure"] = f.figure;
    row["unit"] = f.unit;
    row["value"] = OrNull(f.value);
    row["peer"] = f.peer;
    row["peer_value"] = OrNull(f.peer_value);
    row["limit"] = OrNull(f.limit);
    row["target"] = OrNull(f.target);
    row["n"] = f.n;
    row["min"] = OrNull(f.min);
    row["max"] = OrNull(f.max);
    row["note"] = f.note;
    row["commit"] = SPARKV_COMMIT;
    row["machine"] = machine;
    out.push_back(row);
  }
  return out.dump(1) + "\n";
}

absl::Status FigureFile::Write(const std::string& path) const {
  return WriteFileDurably(path, ToJson());
}

std::string MachineLine() {
  std::string model = "unknown CPU";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos)
      model = std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    break;
  }
  double load = 0;
  getloadavg(&load, 1);
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGESIZE)) / (1024.0 * 1024 * 1024);
  return absl::StrFormat("%s, %d cores, %.0f GiB, load %.2f", model,
                         static_cast<int>(std::thread::hardware_concurrency()), gib, load);
}

}  // namespace sparkv::cli

#include "common/calibrate/calibration_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sparkv {
namespace {

constexpr double kWidth = 860, kPlot = 180, kLeft = 60, kTop = 30, kGap = 56;
constexpr const char* kColorK = "#1f6f8b";
constexpr const char* kColorV = "#e07a3f";

// Two bars for each layer; `value` maps to 0..1 of the height.
void AddBars(const std::string& title, double top, const CalibrationReport& report,
             const std::function<double(double)>& height,
             const std::function<std::pair<double, double>(const LayerReport&)>& values,
             std::string* out) {
  absl::StrAppendFormat(out, "<text x='%.0f' y='%.0f'>%s</text>\n", kLeft, top - 8, title);
  absl::StrAppendFormat(out, "<line x1='%.0f' y1='%.0f' x2='%.0f' y2='%.0f' stroke='#888'/>\n",
                        kLeft, top + kPlot, kWidth - 20, top + kPlot);
  const double step = (kWidth - 20 - kLeft) / static_cast<double>(report.layers.size());
  for (size_t l = 0; l < report.layers.size(); ++l) {
    const auto [k, v] = values(report.layers[l]);
    const double x = kLeft + static_cast<double>(l) * step;
    for (const auto& [value, color, shift] : {std::tuple{k, kColorK, 0.1}, {v, kColorV, 0.5}}) {
      const double h = kPlot * std::clamp(height(value), 0.0, 1.0);
      absl::StrAppendFormat(out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'/>\n",
                            x + shift * step, top + kPlot - h, 0.4 * step, h, color);
    }
    if (l % 5 == 0) {
      absl::StrAppendFormat(out, "<text x='%.1f' y='%.0f' font-size='11'>%d</text>\n",
                            x + 0.2 * step, top + kPlot + 14, l);
    }
  }
}

}  // namespace

std::string ReportSvg(const CalibrationReport& report) {
  double most_bits = 1e-9, most = 1e-12, least = 1e12;
  for (const LayerReport& l : report.layers) {
    most_bits = std::max({most_bits, l.bits_k, l.bits_v});
    for (const double s : {l.sensitivity_k, l.sensitivity_v}) {
      if (s <= 0) continue;
      most = std::max(most, s);
      least = std::min(least, s);
    }
  }
  const double height =
      kTop + 2 * (kPlot + kGap) + 30 + 20.0 * static_cast<double>(report.levels.size());
  std::string out = absl::StrFormat(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' font-family='sans-serif' "
      "font-size='13'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
      kWidth, height);
  AddBars(
      absl::StrFormat("bits a value by layer, first level (K %s, V %s); highest %.2f", "blue",
                      "orange", most_bits),
      kTop, report, [&](double v) { return v / most_bits; },
      [](const LayerReport& l) { return std::pair(l.bits_k, l.bits_v); }, &out);
  AddBars(
      absl::StrFormat(
          "sensitivity by layer: KL for noise of one squared step, log scale %.1e .. %.1e", least,
          most),
      kTop + kPlot + kGap, report,
      [&](double v) {
        return v <= 0 ? 0.0 : 0.05 + 0.95 * std::log(v / least) / std::log(most / least + 1e-9);
      },
      [](const LayerReport& l) { return std::pair(l.sensitivity_k, l.sensitivity_v); }, &out);
  double y = kTop + 2 * (kPlot + kGap) + 10;
  for (const LevelReport& l : report.levels) {
    absl::StrAppendFormat(
        &out,
        "<text x='%.0f' y='%.0f'>level %d: %.0f bytes a token, KL %.5f, copy KL %.5f</text>\n",
        kLeft, y, l.level, l.bytes_per_token, l.fidelity.kl, l.fidelity.copy_kl);
    y += 20;
  }
  return out + "</svg>\n";
}

std::string ReportText(const CalibrationReport& report) {
  std::string out = absl::StrFormat(
      "codec %s, %d texts, %d tokens, step %.6g, %.0f s\nlayer  bits K  bits V  sensitivity K  "
      "sensitivity V\n",
      report.codec, report.texts, report.tokens, report.step, report.seconds);
  for (size_t l = 1; l < report.layers.size(); ++l) {
    const LayerReport& r = report.layers[l];
    absl::StrAppendFormat(&out, "%5d  %6.3f  %6.3f  %13.3e  %13.3e\n", l, r.bits_k, r.bits_v,
                          r.sensitivity_k, r.sensitivity_v);
  }
  absl::StrAppend(&out, "level  bytes/token  KL        copy KL   top-1\n");
  for (const LevelReport& l : report.levels) {
    absl::StrAppendFormat(&out, "%5d  %11.0f  %.6f  %.6f  %.4f\n", l.level, l.bytes_per_token,
                          l.fidelity.kl, l.fidelity.copy_kl, l.fidelity.top1);
  }
  return out;
}

}  // namespace sparkv

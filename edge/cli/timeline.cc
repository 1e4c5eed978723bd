#include "edge/cli/timeline.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sparkv::cli {
namespace {

char Mark(const v1::BlockEvent& event) {
  const char letter = static_cast<char>(event.column() % 26);
  switch (event.kind()) {
    case v1::BlockEvent::STREAMED:
      return static_cast<char>('a' + letter);
    case v1::BlockEvent::COMPUTED:
      return static_cast<char>('A' + letter);
    case v1::BlockEvent::QUERY:
      return '*';
    default:
      return '?';
  }
}

}  // namespace

std::string DrawTimeline(const v1::GenerateResponse::Result& result, int rows, int width) {
  std::vector<const v1::BlockEvent*> events;
  uint32_t layers = 0;
  uint32_t columns = 0;
  float end = 0;
  for (const v1::BlockEvent& event : result.timeline()) {
    if (!std::isfinite(event.begin_ms()) || !std::isfinite(event.end_ms())) continue;
    events.push_back(&event);
    layers = std::max(layers, event.layer() + 1);
    if (event.kind() != v1::BlockEvent::QUERY) columns = std::max(columns, event.column() + 1);
    end = std::max(end, event.end_ms());
  }
  if (events.empty() || end <= 0 || rows < 1 || width < 1) return "";
  std::stable_sort(events.begin(), events.end(),
                   [](const v1::BlockEvent* a, const v1::BlockEvent* b) {
                     const bool a_query = a->kind() == v1::BlockEvent::QUERY;
                     const bool b_query = b->kind() == v1::BlockEvent::QUERY;
                     if (a_query != b_query) return b_query;
                     return a->end_ms() < b->end_ms();
                   });
  const uint32_t per_row = (layers + static_cast<uint32_t>(rows) - 1) / static_cast<uint32_t>(rows);
  const uint32_t lines = (layers + per_row - 1) / per_row;
  std::vector<std::string> grid(lines, std::string(static_cast<size_t>(width), '.'));
  for (const v1::BlockEvent* event : events) {
    const auto cell = [&](float ms) {
      return std::clamp(static_cast<int>(ms / end * static_cast<float>(width)), 0, width - 1);
    };
    const int first = cell(event->begin_ms());
    const int last = std::max(first, cell(event->end_ms()));
    std::string& line = grid[event->layer() / per_row];
    std::fill(line.begin() + first, line.begin() + last + 1, Mark(*event));
  }
  std::string out = absl::StrFormat("layer  0 ms%*s\n", width - 4, absl::StrFormat("%.0f ms", end));
  for (uint32_t line = lines; line-- > 0;) {  // the top layer on top
    const uint32_t first = line * per_row;
    const uint32_t last = std::min(layers, first + per_row) - 1;
    const std::string label = first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
    absl::StrAppend(&out, absl::StrFormat("%5s  ", label), grid[line], "\n");
  }
  const std::string range =
      columns > 1 ? absl::StrFormat(" (context columns 0..%d: %c..%c)", columns - 1, 'a',
                                    'a' + static_cast<char>(std::min(columns - 1, 25u)))
                  : "";
  absl::StrAppend(&out, "       a-z streamed, A-Z computed here", range, ", * query, . idle\n");
  return out;
}

}  // namespace sparkv::cli

// A load drawn in the terminal: rows are layers, columns are time.
#pragma once

#include <string>

#include "sparkv/v1/edge.pb.h"

namespace sparkv::cli {

// At most `rows` rows (several layers share one beyond that) and `width` time cells. In a cell:
// a..z, then a again, a streamed block of context column 0, 1, ...; A..Z a computed one; * the
// query's layer; . nothing. What ended last is on top, the query above all. Empty for no events.
std::string DrawTimeline(const v1::GenerateResponse::Result& result, int rows, int width);

}  // namespace sparkv::cli

// What a calibration found, for people.
#pragma once

#include <string>

#include "common/calibrate/calibrator.h"

namespace sparkv {

// Bits and sensitivity of K and V by layer, and bytes against KL by level, as an SVG picture.
std::string ReportSvg(const CalibrationReport& report);
// The same as plain lines.
std::string ReportText(const CalibrationReport& report);

}  // namespace sparkv

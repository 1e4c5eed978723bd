// `sparkv calibrate`: makes a codec profile of a model.
#pragma once

#include <CLI/CLI.hpp>

namespace sparkv::cli {

void AddCalibrateCommand(CLI::App* app, int* exit_code);

}  // namespace sparkv::cli

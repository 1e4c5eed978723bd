// `sparkv ask` and `sparkv chat`.
#pragma once

#include <CLI/CLI.hpp>

namespace sparkv::cli {

// *exit_code receives the code of the command that ran.
void AddAskCommands(CLI::App* app, int* exit_code);

}  // namespace sparkv::cli

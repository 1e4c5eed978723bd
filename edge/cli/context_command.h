// `sparkv context add|ls|show|rm`, `load`, `status` and `gguf`.
#pragma once

#include <CLI/CLI.hpp>

namespace sparkv::cli {

// *exit_code receives the code of the command that ran.
void AddContextCommands(CLI::App* app, int* exit_code);
void AddDaemonCommands(CLI::App* app, int* exit_code);

}  // namespace sparkv::cli

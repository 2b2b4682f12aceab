// sluice completion: scripts that let shells complete commands and options.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

void add_completion(CLI::App& app);

}  // namespace sluice::cli

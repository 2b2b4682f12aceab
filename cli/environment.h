// The process's environment: read here and nowhere below.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace sluice::cli {

// All variables.
std::map<std::string, std::string> environment();

// Where tools/bootstrap keeps what it installs: $SLUICE_DEPS, or ~/.cache/sluice.
std::filesystem::path dependencies_directory();

// The Python that has the `tokenizers` package.
std::filesystem::path tokenizers_python();

}  // namespace sluice::cli

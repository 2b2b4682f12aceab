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

// tools/hf_tokenize.py of the checkout that this program was built in, or its installed copy.
std::filesystem::path tokenizers_script();

}  // namespace sluice::cli

// The process's environment: read here and nowhere below.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "corpus/python_child.h"

namespace sluice::cli {

// All variables.
std::map<std::string, std::string> environment();

// Where tools/bootstrap keeps what it installs: $SLUICE_DEPS, or ~/.cache/sluice.
std::filesystem::path dependencies_directory();

// The Python that has the packages `tokenizers` and `pyarrow`, and the scripts of the checkout that this
// program was built in, or their installed copies.
corpus::PythonTools python_tools();

}  // namespace sluice::cli

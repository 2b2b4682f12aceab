// The process's environment: read here and nowhere below.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "corpus/indexed.h"
#include "corpus/python_child.h"
#include "storage/location.h"

namespace sluice::cli {

// All variables.
std::map<std::string, std::string> environment();

// The words that this program was started with, its name first.
std::vector<std::string> command_line();

// Where tools/bootstrap keeps what it installs: $SLUICE_DEPS, or ~/.cache/sluice.
std::filesystem::path dependencies_directory();

// A path, or s3://BUCKET/NAME with the access that the environment gives (storage/s3_access.h).
storage::Location locate(const std::string& text);

// How corpora in buckets are read: with the environment's access, and their indexes kept in `corpora` of
// dependencies_directory().
corpus::IndexedOptions corpus_places();

// The Python that --python or $SLUICE_PYTHON names, or else those that may have the packages `tokenizers` and
// `pyarrow`: the one that this program was built beside, and the PATH's python3. With the scripts of the
// checkout that this program was built in, or their installed copies.
corpus::PythonTools python_tools();

// --python, for this process and all that it starts.
void add_python_option(CLI::App& command);

}  // namespace sluice::cli

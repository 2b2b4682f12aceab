// The process's environment. No library below cli/ reads it.
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

// All variables of the environment.
std::map<std::string, std::string> environment();

// The command line of this program, its name first.
std::vector<std::string> command_line();

// The folder in which tools/bootstrap installs: $SLUICE_DEPS, or ~/.cache/sluice.
std::filesystem::path dependencies_directory();

// Resolves a path, or s3://BUCKET/NAME with access from the environment (storage/s3_access.h).
storage::Location locate(const std::string& text);

// Options for reading corpora in buckets: access from the environment, and a folder for their indexes,
// `corpora` in dependencies_directory().
corpus::IndexedOptions corpus_places();

// The Python of --python or $SLUICE_PYTHON. Without them candidates that may have the packages `tokenizers`
// and `pyarrow`: the one that this program was built beside, and the PATH's python3. The scripts are those of
// the checkout that this program was built in, or their installed copies.
corpus::PythonTools python_tools();

// Adds --python, which counts for this process and all processes that it starts.
void add_python_option(CLI::App& command);

}  // namespace sluice::cli

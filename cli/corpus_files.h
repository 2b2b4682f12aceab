// What `sluice corpus` does with corpora that are there.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

void add_corpus_merge(CLI::App& corpus);
void add_corpus_show(CLI::App& corpus);

}  // namespace sluice::cli

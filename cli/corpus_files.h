// `sluice corpus` on existing corpora: merging and showing.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

void add_corpus_merge(CLI::App& corpus);
void add_corpus_show(CLI::App& corpus);

}  // namespace sluice::cli

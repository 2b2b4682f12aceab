// One file for each subcommand: it defines the function below that adds the subcommand to the program. A
// command reads its options, calls the library and prints. Errors travel as base::Error to main, which prints
// one line and exits with the error's status. torch/ is in sluice-torch alone (torch_commands.h).
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

void add_corpus(CLI::App& app);
void add_lengths(CLI::App& app);
void add_propose(CLI::App& app);
void add_plan(CLI::App& app);
void add_fits(CLI::App& app);
void add_simulate(CLI::App& app);
void add_profile(CLI::App& app);
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_embed(CLI::App& app);
void add_generate(CLI::App& app);
void add_serve(CLI::App& app);
void add_export(CLI::App& app);
void add_import(CLI::App& app);
void add_report(CLI::App& app);
void add_inspect(CLI::App& app);
void add_keys(CLI::App& app);
void add_models(CLI::App& app);
void add_watch(CLI::App& app);
void add_doctor(CLI::App& app);

}  // namespace sluice::cli

// sluice keys: the keys that may stand in files that users write and read by hand.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/renames.h"
#include "cli/command.h"
#include "config/config_file.h"
#include "report/step_record.h"

namespace sluice::cli {

namespace {

struct KeysArguments {
  std::string file;
  std::vector<std::string> overrides;
};

void print_config(const KeysArguments& options) {
  config::RunConfig config;
  config.model.hf = "folder";
  config.data.train = {{"corpora/stdlib/corpus", 1.0}};
  if (!options.file.empty()) {
    config = config::read_config(options.file, options.overrides);
  } else if (!options.overrides.empty()) {
    config = config::parse_config(config::to_toml(config), "the defaults", options.overrides);
  }
  std::cout << config::described(config);
}

}  // namespace

void add_keys(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("keys", "Every key of a run configuration, or of metrics.jsonl; old names");
  command->require_subcommand(1);
  auto options = std::make_shared<KeysArguments>();
  CLI::App* config = command->add_subcommand(
      "config", "A run configuration with every key, what it may be and what it means: a file to begin with");
  config->add_option("--config", options->file, "Take values from here instead of the defaults");
  config->add_option("--set", options->overrides, "section.key=value, any number of times")->take_all();
  config->callback([options] { print_config(*options); });
  CLI::App* metrics = command->add_subcommand("metrics", "Every field of a step in metrics.jsonl");
  metrics->callback([] { std::cout << report::metrics_text(); });
  CLI::App* renamed = command->add_subcommand("renamed", "Old names and today's, as docs/renamed.md");
  renamed->callback([] { std::cout << base::renames_text(); });
}

}  // namespace sluice::cli

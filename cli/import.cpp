// sluice import: a Hugging Face folder as a checkpoint to train from.
#include <iostream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "checkpoint/conversion.h"
#include "checkpoint/save.h"
#include "cli/command.h"

namespace sluice::cli {

namespace {

struct Options {
  std::filesystem::path folder;
  std::filesystem::path out;
  bool json = false;
};

void run(const Options& options) {
  const checkpoint::HuggingFaceModel model(options.folder);
  if (!checkpoint::saved_steps(options.out).empty()) {
    throw base::InputError(
        base::text(options.out.string(), " holds checkpoints already: name another --out"));
  }
  const std::filesystem::path directory = checkpoint::import_checkpoint(model, options.out);
  if (options.json) {
    const base::Json json = {{"checkpoint", directory.string()},
                             {"parameters", model.shape().parameters()},
                             {"dtype", checkpoint::config_name(model.type())}};
    std::cout << base::json_text(json, 2) << "\n";
    return;
  }
  std::cout << base::text(directory.string(), ": ", base::human_count(model.shape().parameters()),
                          " parameters of ", checkpoint::config_name(model.type()),
                          "; train from it with --resume ", directory.string(), "\n");
}

}  // namespace

void add_import(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import", "Turn a Hugging Face folder into a checkpoint of step 0");
  auto options = std::make_shared<Options>();
  command->add_option("folder", options->folder, "Folder with config.json and safetensors")->required();
  command->add_option("--out", options->out, "Directory in which step-0 is made")->required();
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli

// sluice import: turns a Hugging Face folder into a checkpoint to train from.
#include <iostream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "checkpoint/conversion.h"
#include "checkpoint/find.h"
#include "checkpoint/manifest.h"
#include "checkpoint/optimizer_folder.h"
#include "checkpoint/save.h"
#include "cli/command.h"
#include "cli/model_folder.h"
#include "cli/outputs.h"
#include "cli/torch_commands.h"
#include "model/parameter_count.h"

namespace sluice::cli {

namespace {

struct ImportArguments {
  std::filesystem::path folder;
  std::filesystem::path out;
  bool weights_only = false;
  bool json = false;
};

void run(ImportArguments options) {
  options.folder = model_folder(options.folder.string());
  const checkpoint::HuggingFaceModel model(options.folder);
  if (!checkpoint::saved_steps(options.out).empty()) {
    throw base::InputError(
        base::text(options.out.string(), " holds checkpoints already: name another --out"));
  }
  const bool training = !options.weights_only && checkpoint::has_optimizer(options.folder);
  const std::filesystem::path directory = checkpoint::import_checkpoint(
      model, options.out, training ? checkpoint::Contents::kTraining : checkpoint::Contents::kWeights);
  const int64_t step = checkpoint::step_of_directory(directory).value_or(0);
  if (options.json) {
    const base::Json json = {{"checkpoint", directory.string()},
                             {"parameters", model::parameter_count(model.model())},
                             {"dtype", checkpoint::config_name(model.type())},
                             {"step", step},
                             {"optimizer", training}};
    std::cout << base::json_text(json, 2) << "\n";
    return;
  }
  std::cout << base::text(
      directory.string(), ": ", base::human_count(model::parameter_count(model.model())), " parameters of ",
      checkpoint::config_name(model.type()),
      training ? base::text(" with the optimiser's state after ", base::human_count(step, "step", "steps"))
               : "",
      "; train from it with --resume ", directory.string(), "\n");
}

}  // namespace

void add_import(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import", about_torch_command("import"));
  auto options = std::make_shared<ImportArguments>();
  command->add_option("folder", options->folder, "Folder with config.json and safetensors")->required();
  add_output(*command, "--out", options->out, Output::kFolder,
             "Directory in which step-0 is made, or the step of the folder's optimiser")
      ->required();
  command->add_flag("--weights-only", options->weights_only,
                    "Leave out the optimiser's state that `export --optimizer` has written");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli

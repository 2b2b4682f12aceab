// sluice export: turns a checkpoint into a Hugging Face folder.
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/conversion.h"
#include "checkpoint/find.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/torch_commands.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "model/parameter_count.h"
#include "model/tuning.h"
#include "run/export_check.h"
#include "run/learnt_turns.h"

namespace sluice::cli {

namespace {

struct ExportArguments {
  std::string checkpoint;
  std::filesystem::path out;
  std::string dtype = "float32";
  int64_t max_shard_bytes = checkpoint::ExportOptions{}.max_shard_bytes;
  int64_t max_positions = 0;
  bool optimizer = false;
  bool adapters = false;
  std::string base;
  std::string quantize = "none";
  bool unchecked = false;
  bool json = false;
};

// The run that made the checkpoint; empty for an imported model.
std::optional<config::RunConfig> run_of(const checkpoint::Checkpoint& checkpoint) {
  const std::string& toml = checkpoint.manifest().config;
  if (toml.empty()) return std::nullopt;
  return config::parse_config(toml, (checkpoint.directory() / "manifest.json").string(), {},
                              config::Origin::kRun);
}

checkpoint::TensorType type_of(const ExportArguments& options, const checkpoint::Checkpoint& checkpoint) {
  return options.dtype == "auto" ? checkpoint::folder_record(checkpoint.companions()).type
                                 : checkpoint::type_from_config_name(options.dtype, "--dtype");
}

// The base model of a run's adapters: the user's choice, or the folder that the run started from.
std::string base_of(const ExportArguments& options, const checkpoint::Checkpoint& checkpoint,
                    const std::optional<config::RunConfig>& trained) {
  if (!options.base.empty()) return options.base;
  const std::string origin = checkpoint::folder_record(checkpoint.companions()).origin;
  if (!origin.empty()) return origin;
  if (trained && !trained->model.hf.empty()) return std::filesystem::absolute(trained->model.hf).string();
  base::log_warning(base::text(checkpoint.directory().string(),
                               " does not say which model folder its run began with, so adapter_config.json "
                               "names no base model: give --base FOLDER"));
  return "";
}

void print(const ExportArguments& options, const checkpoint::Checkpoint& checkpoint,
           const std::optional<run::ExportCheck>& check = std::nullopt) {
  const checkpoint::Manifest& manifest = checkpoint.manifest();
  const int64_t whole = model::parameter_count(model::as_exported(manifest.model));
  const int64_t parameters = options.adapters ? model::parameter_count(manifest.model) - whole : whole;
  if (options.json) {
    base::Json json = {{"folder", options.out.string()},
                       {"checkpoint", checkpoint.directory().string()},
                       {"step", manifest.step},
                       {"parameters", parameters},
                       {"dtype", checkpoint::config_name(type_of(options, checkpoint))},
                       {"quantized", options.quantize},
                       {"optimizer", options.optimizer}};
    if (check) {
      json["checked"] = {{"loss", check->without_loss.empty() ? base::Json(check->loss) : base::Json()},
                         {"sequences", check->sequences},
                         {"end_tokens", check->end_tokens},
                         {"chat_template", check->has_template},
                         {"tokenizer", check->tokenizer}};
    }
    std::cout << base::json_text(json, 2) << "\n";
    return;
  }
  std::cout << base::text(
      options.out.string(), ": ", base::human_count(parameters),
      options.adapters ? " parameters of adapters after " : " parameters after ", manifest.step,
      " steps, as ", checkpoint::config_name(type_of(options, checkpoint)),
      options.quantize == "none" ? "" : base::text(", linear modules in ", options.quantize),
      options.optimizer ? ", with the optimiser's state" : "", "\n");
  if (check) std::cout << check->line() << "\n";
}

void run(const ExportArguments& options) {
  const std::unique_ptr<checkpoint::Checkpoint> opened =
      checkpoint::open_newest_whole(locate(options.checkpoint));
  checkpoint::Checkpoint& checkpoint = *opened;
  checkpoint::ExportOptions exported;
  exported.type = type_of(options, checkpoint);
  exported.max_shard_bytes = options.max_shard_bytes;
  const std::optional<config::RunConfig> trained = run_of(checkpoint);
  exported.least_positions = trained ? config::longest_context(*trained) : 0;
  exported.positions = options.max_positions;
  exported.quantization = checkpoint::quantization_of(options.quantize);
  if (options.adapters) {
    checkpoint::export_adapters(checkpoint, options.out, base_of(options, checkpoint, trained), exported);
    return print(options, checkpoint);
  }
  exported.companions = checkpoint.companions();
  // Older programs did not add learnt turns when they saved.
  if (trained) run::add_learnt_turns(trained->data, {}, exported.companions);
  exported.record = checkpoint::folder_record(exported.companions);
  checkpoint::export_checkpoint(
      checkpoint, options.out, exported,
      options.optimizer ? checkpoint::Contents::kTraining : checkpoint::Contents::kWeights);
  if (options.unchecked) return print(options, checkpoint);
  print(options, checkpoint, run::check_export(checkpoint, options.out, exported, trained));
}

}  // namespace

void add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", about_torch_command("export"));
  auto options = std::make_shared<ExportArguments>();
  command
      ->add_option(
          "checkpoint", options->checkpoint,
          "Checkpoint (step-N), or a run directory: its newest checkpoint; or s3://BUCKET/NAME of either")
      ->required();
  add_output(*command, "--out", options->out, Output::kFolder,
             "Folder to make; it must not exist or be empty")
      ->required();
  command
      ->add_option("--dtype", options->dtype,
                   "Type of the weights; auto: that of the folder that the run began with. Tensors that this "
                   "folder has in float32 beside others stay so")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->capture_default_str();
  command
      ->add_option("--max-shard-bytes", options->max_shard_bytes,
                   "Most bytes of tensors in a file; a larger tensor has a file of its own")
      ->check(at_least(1))
      ->capture_default_str();
  command
      ->add_option("--max-positions", options->max_positions,
                   "max_position_embeddings of config.json; 0: that of the imported model, or the context "
                   "length of the run where that is longer")
      ->check(at_least(0))
      ->capture_default_str();
  command->add_flag(
      "--optimizer", options->optimizer,
      "Export the optimiser's state and the run's place in its data, too: from an import of the "
      "folder training goes on where it stood");
  command
      ->add_flag("--adapters", options->adapters,
                 "Export a LoRA run's adapters alone, in PEFT's format, instead of the model that has them "
                 "merged")
      ->excludes("--optimizer");
  command
      ->add_option(
          "--quantize", options->quantize,
          "Write the blocks' linear modules in fewer bits, as bitsandbytes saves them: nf4, nf4-double "
          "(the blocks' maxima are quantised, too) or int8")
      ->check(CLI::IsMember({"none", "nf4", "nf4-double", "int8"}))
      ->capture_default_str()
      ->excludes("--optimizer", "--adapters");
  command
      ->add_option("--base", options->base,
                   "The model that adapter_config.json names: a folder, or a name of the hub (default: the "
                   "folder that the run began with)")
      ->needs("--adapters");
  command->add_flag(
      "--no-check", options->unchecked,
      "Don't load the folder again to compare its loss, end tokens, chat template and tokenizer "
      "with the checkpoint's");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli

// sluice fits: whether a model and its context fit a cluster's memory, and the settings for it.
#include <iostream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/planning.h"
#include "config/run_config.h"
#include "model/parameter_count.h"
#include "session/memory_fit.h"
#include "strategy/readable.h"

namespace sluice::cli {

namespace {

using base::text;

struct FitsArguments {
  session::PlanningOptions inputs;
  int64_t context = 8192;
  std::string optimizer = "adamw";
  std::string master_dtype = "float32";
  bool json = false;
};

constexpr double kGiB = 1 << 30;

std::string gib(int64_t bytes) {
  const auto tenths = static_cast<int64_t>(static_cast<double>(bytes) / kGiB * 10 + 0.5);
  return text(tenths / 10, ".", tenths % 10);
}

std::string table_of(const session::MemoryFit& fit) {
  const session::DeviceBytes bytes = fit.bytes();
  const std::vector<std::string> settings = fit.settings();
  return base::table_text(
      {{"strategy", readable(fit.choice.scheme)},
       {"settings", settings.empty() ? "none needed" : base::join(settings, ", ")},
       {"GiB per GPU", text(gib(bytes.all()), " of ", gib(bytes.usable))},
       {"  optimiser", text(gib(bytes.owned), "  masters, moments, summed gradients")},
       {"  model", text(gib(bytes.computing), "  parameters and gradients at hand, buffers")},
       {"  activations", gib(bytes.activations)},
       {"GiB of host per GPU", gib(bytes.host)},
       {"longest sequence", text(base::human_count(fit.longest_tokens()), " tokens")},
       {"time of the sequence", base::human_duration(fit.choice.estimated_ns)}},
      "ll");
}

session::FitRequest request_of(const FitsArguments& arguments, const session::PlanningInputs& inputs) {
  cost::CostModel::Options machine = inputs.calibration.options;
  if (arguments.master_dtype == "bfloat16") machine.memory.narrow_masters();
  if (arguments.optimizer == "adamw_8bit") machine.memory.code_moments();
  if (arguments.optimizer == "muon") machine.newton_schulz_steps = config::OptimizerConfig().ns_steps;
  const int ranks = inputs.options.gpus;
  return {.cost = cost::CostModel(std::move(machine)),
          .world_size = ranks,
          .length_tokens = arguments.context,
          .max_cp = inputs.options.max_cp > 0 ? inputs.options.max_cp : ranks,
          .max_share = inputs.options.fsdp ? ranks : 1};
}

void run(const FitsArguments& arguments) {
  const session::PlanningInputs inputs = session::resolve_machine(with_model_folder(arguments.inputs));
  log_counted(inputs.calibration.options.model);
  const session::FitRequest request = request_of(arguments, inputs);
  const std::optional<session::MemoryFit> fit = session::find_fit(request);
  const std::optional<session::MemoryFit> other = fit ? fit : session::find_fit_otherwise(request);
  const std::string asked =
      text(base::human_count(model::parameter_count(inputs.calibration.options.model)), " parameters and ",
           base::human_count(arguments.context), " tokens on ",
           base::human_count(inputs.options.gpus, "GPU", "GPUs"), " of ", inputs.cluster.name);
  if (arguments.json) {
    base::Json answer = {{"fits", fit.has_value()},
                         {"gpus", inputs.options.gpus},
                         {"cluster", inputs.cluster.name},
                         {"context_tokens", arguments.context}};
    answer[fit ? "fit" : "otherwise"] = other ? session::to_json(*other) : base::Json();
    std::cout << base::json_text(answer, 2) << "\n";
  } else if (fit) {
    std::cout << asked << ": fits (" << inputs.calibration.source << ")\n\n" << table_of(*fit);
  }
  if (fit) return;
  throw base::InfeasibleError(text(asked, " do not fit: ", session::way_out(request, other)));
}

}  // namespace

void add_fits(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("fits", "Whether a model and its context fit a cluster's memory, and how");
  auto arguments = std::make_shared<FitsArguments>();
  session::PlanningOptions& inputs = arguments->inputs;
  command->add_option(
      "--model", inputs.model,
      "A public model, as qwen3-8b or llama-7b, a Hugging Face folder, or a model of the hub, "
      "ORGANISATION/NAME (default: the calibration's)");
  command->add_option("--gpus", inputs.gpus, "GPUs; 0: all of a cluster file, one node of a preset")
      ->capture_default_str();
  command->add_option("--cluster", inputs.cluster, "A preset or a file, as for propose (default: a800x8)");
  command
      ->add_option("--calibration", inputs.calibration, "A calibration.json, a shipped fit or \"analytic\"")
      ->capture_default_str();
  command
      ->add_option("--context", arguments->context, "Tokens of the longest sequence, as 131072, 128K or 1M")
      ->transform(token_count())
      ->capture_default_str();
  command->add_option("--optimizer", arguments->optimizer, "adamw, adamw_8bit or muon")
      ->check(CLI::IsMember({"adamw", "adamw_8bit", "muon"}))
      ->capture_default_str();
  command->add_option("--master-dtype", arguments->master_dtype, "float32 or bfloat16 (train.master_dtype)")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--max-cp", inputs.max_cp, "Largest CP degree (default: all ranks')")
      ->check(within(1, 1 << 20));
  command->add_flag("!--no-fsdp", inputs.fsdp, "Propose no FSDP");
  command->add_flag("--json", arguments->json, "Print the answer as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli

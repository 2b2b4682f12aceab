#include "cli/planning.h"

#include "base/log.h"
#include "base/text.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/slow_notice.h"
#include "model/parameter_count.h"
#include "strategy/device_peaks.h"

namespace sluice::cli {

using base::text;

std::vector<CLI::Option*> add_planning_options(CLI::App& command, session::PlanningOptions& options) {
  return {
      command.add_option("--gpus", options.gpus, "GPUs; 0: all of a cluster file, one node of a preset")
          ->capture_default_str(),
      command.add_option("--cluster", options.cluster,
                         text("A preset (", base::join(strategy::cluster_preset_names(), ", "),
                              "), several as '2x h100x8 + 4x a800x8', or a file, JSON or TOML (default: "
                              "a800x8, with a calibration's links)")),
      command.add_option("--model", options.model,
                         "A public model, as qwen3-30b-a3b or llama-7b (a wrong name lists them), a Hugging "
                         "Face folder, or a "
                         "model of the hub, ORGANISATION/NAME (default: the calibration's)"),
      command
          .add_option("--lengths", options.lengths,
                      "Corpora, lengths.json, or text files with one length a line")
          ->allow_extra_args(false),
      command
          .add_option(
              "--context", options.context_length,
              "Longest sequence in tokens, documents beyond it are truncated; 0: the longest document")
          ->capture_default_str(),
      command
          .add_option("--tokens-per-step", options.tokens_per_step,
                      "Tokens of a batch; 0: all documents are one batch")
          ->capture_default_str(),
      command.add_option("--seed", options.seed, "Seed of the order of documents")->capture_default_str(),
      add_word_option(command, "--stages", options.stages, strategy::parse_stage_cut,
                      "Cut pipeline stages by time or by layers")
          ->default_str(base::word_of(strategy::kStageCuts, options.stages)),
      add_word_option(command, "--exchange", options.exchange, strategy::parse_exchange_rule,
                      "Between CP ranks that share a sequence: auto, or ring, heads, nested, balanced or "
                      "queries alone; cycle: all in turn")
          ->default_str(base::word_of(strategy::kExchangeRules, options.exchange))};
}

CLI::Option* add_strategies_option(CLI::App& command, session::PlanningOptions& options,
                                   const std::string& what) {
  return command
      .add_option(
          "--strategies", options.strategies,
          text(what,
               ": strategies.json, a file with one a line, or a text such as '1x<4,2,1> + 8x<1,1,1>'; "
               "any number (default: proposed)"))
      ->take_all()
      ->allow_extra_args(false);
}

void add_run_options(CLI::App& command, RunPlanningOptions& run, const std::string& ranks,
                     const std::vector<CLI::Option*>& inputs) {
  CLI::Option* config = command.add_option("--config", run.config, "Run configuration (TOML)");
  command.add_option("--set", run.settings, "section.key=value, over the configuration; any number")
      ->take_all()
      ->allow_extra_args(false)
      ->needs(config);
  command.add_option("--ranks", run.ranks, ranks)
      ->check(within(0, 1 << 20))
      ->capture_default_str()
      ->needs(config);
  for (CLI::Option* input : inputs) input->excludes(config);
}

void log_counted(const model::Model& model) {
  if (!model.counted()) return;
  base::log_info(text("model_type ", model.family(),
                      " is counted, not computed: ", base::human_count(model::parameter_count(model)),
                      " parameters, ", base::human_count(model::active_parameter_count(model)),
                      " of them passed by a token; FLOPs and bytes are analytic"));
}

void log_proposing(const session::PlanningInputs& inputs) {
  log_counted(inputs.calibration.options.model);
  base::log_info(text("proposing strategies for ", base::human_count(inputs.options.gpus, "GPU", "GPUs"),
                      " and batches of ", base::human_count(inputs.options.tokens_per_step), " tokens"));
}

Planning planning_of(const session::PlanningOptions& options) {
  const session::PlanningInputs inputs = session::resolve_planning(with_model_folder(options));
  if (inputs.strategies.empty()) {
    log_proposing(inputs);
  } else {
    log_counted(inputs.calibration.options.model);
  }
  SlowNotice notice("choosing strategies to plan with");
  plan::PlannerOptions planner = session::planner_options(inputs);
  planner.progress = session::told_in_words([&notice](const std::string& how_far) { notice.tell(how_far); });
  Planning planning{session::make_planner(planner, inputs.cost()),
                    session::PhasedSampler(std::make_unique<corpus::Sampler>(inputs.sampler()))};
  planning.peak_flops_per_ns =
      strategy::peak_flops_per_ns(inputs.cluster, planning.planner.options().world_size);
  return planning;
}

}  // namespace sluice::cli

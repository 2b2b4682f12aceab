#include "cli/planning.h"

#include "base/log.h"
#include "base/text.h"
#include "plan/batch_sample.h"
#include "plan/paper_propose.h"

namespace sluice::cli {

using base::text;

std::vector<CLI::Option*> add_planning_options(CLI::App& command, config::PlanningOptions& options) {
  return {command.add_option("--gpus", options.gpus, "GPUs; 0: all of a cluster file, one node of a preset")
              ->capture_default_str(),
          command.add_option("--cluster", options.cluster,
                             text("A preset (", base::join(strategy::cluster_preset_names(), ", "),
                                  ") or a file, JSON or TOML (default: a800x8, with a calibration's links)")),
          command.add_option(
              "--model", options.model,
              "llama-7b, llama-13b, llama-32b or a Hugging Face folder (default: the calibration's)"),
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
          command.add_option("--seed", options.seed, "Of the order in which documents are drawn")
              ->capture_default_str()};
}

Proposed propose_for(const config::PlanningInputs& inputs, int most, plan::Method method) {
  plan::BatchSampleOptions sample;
  sample.tokens_per_step = inputs.options.tokens_per_step;
  sample.seed = static_cast<uint64_t>(inputs.options.seed);
  Proposed proposed;
  proposed.sample_batches = plan::stratified_batches(inputs.sequence_lengths(), sample);
  plan::ProposalOptions options;
  options.world_size = inputs.options.gpus;
  options.context_length = inputs.options.context_length;
  options.sample_batches = proposed.sample_batches;
  options.max_strategies = most;
  base::log_info(text("proposing strategies for ", options.world_size, " GPUs, judged by ",
                      options.sample_batches.size(), " batches of ",
                      base::human_count(inputs.options.tokens_per_step), " tokens"));
  proposed.strategies = method == plan::Method::kPaper ? plan::paper_propose(options, inputs.cost())
                                                       : plan::propose(options, inputs.cost());
  return proposed;
}

Planning planning_of(const config::PlanningOptions& options, const std::string& method) {
  const config::PlanningInputs inputs = config::resolve_planning(options);
  plan::PlannerOptions planner;
  planner.world_size = inputs.options.gpus;
  planner.method = config::parse_method(method);
  planner.paper.dispatch.seed = static_cast<uint64_t>(inputs.options.seed);
  planner.candidates = inputs.strategies;
  constexpr int kCandidates = 8;
  if (planner.candidates.empty())
    planner.candidates = plan::strategies_of(propose_for(inputs, kCandidates, planner.method).strategies);
  return {plan::Planner(std::move(planner), inputs.cost()), inputs.sampler()};
}

}  // namespace sluice::cli

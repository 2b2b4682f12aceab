#include "config/proposed.h"

#include "base/error.h"
#include "base/text.h"
#include "plan/batch_sample.h"
#include "published/paper_plan.h"
#include "published/paper_propose.h"

namespace sluice::config {

namespace {

using base::InputError;
using base::text;

void check(const ProposingOptions& options) {
  if (options.max_strategies < 1)
    throw InputError(text("max_strategies is ", options.max_strategies, ": give 1 or more"));
  if (options.max_cp < 0) throw InputError(text("max_cp is ", options.max_cp, ": give 1 or more"));
  if (options.method == Method::kExact)
    throw InputError("method is 'exact', which plans batches: propose with ours or paper");
  if (options.method == Method::kPaper && options.max_cp > 1) {
    throw InputError(text("max_cp is ", options.max_cp,
                          " but the published algorithms know no lanes: leave it at 1 or propose with ours"));
  }
}

}  // namespace

int max_cp_of(const ProposingOptions& options) {
  if (options.max_cp > 0) return options.max_cp;
  return options.method == Method::kPaper ? 1 : kUsualMaxCp;
}

Proposed propose_for(const PlanningInputs& inputs, const ProposingOptions& options) {
  check(options);
  const plan::BatchSampleOptions sample{.tokens_per_step = inputs.options.tokens_per_step,
                                        .seed = static_cast<uint64_t>(inputs.options.seed)};
  Proposed proposed;
  proposed.sample_batches = plan::stratified_batches(inputs.sequence_lengths(), sample);
  const plan::ProposalOptions proposal{.world_size = inputs.options.gpus,
                                       .context_length = inputs.options.context_length,
                                       .sample_batches = proposed.sample_batches,
                                       .max_strategies = options.max_strategies,
                                       .max_cp = max_cp_of(options)};
  proposed.strategies = options.method == Method::kPaper ? published::paper_propose(proposal, inputs.cost())
                                                         : plan::propose(proposal, inputs.cost());
  return proposed;
}

plan::Planner planner_of(const PlanningInputs& inputs, Method method) {
  plan::PlannerOptions options;
  options.world_size = inputs.options.gpus;
  options.candidates = inputs.strategies;
  if (method == Method::kExact) options.method = plan::exact();
  if (method == Method::kPaper)
    options.method = published::paper({.dispatch = {.seed = static_cast<uint64_t>(inputs.options.seed)}});
  return plan::Planner(std::move(options), inputs.cost());
}

}  // namespace sluice::config

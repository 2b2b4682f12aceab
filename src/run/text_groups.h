// Steps on groups of texts: a better and a worse answer; or an anchor, its positive and a negative. The loss
// is over the whole batch, on whichever ranks its texts lie. A forward before the step computes the numbers
// of all texts, and from them the gradient by each text. The step's own backward begins with these gradients
// (Gao et al., Scaling Deep Contrastive Learning Batch Size, 2021).
#pragma once

#include <memory>
#include <vector>

#include "config/run_config.h"
#include "corpus/sampler.h"
#include "run/head_objective.h"
#include "run/plan_ahead.h"
#include "run/run_context.h"
#include "run/text_steps.h"

namespace sluice::run {

// The texts of a document's group, from a phase's blends; empty if one does not fit.
std::vector<GroupText> group_texts(const config::RunConfig& config, const session::DataPhase& phase,
                                   const corpus::Blend& first, int64_t document);

// Collective: the numbers of each text, the same on all ranks, computed under the plan of an evaluation.
// `step` is for messages.
std::vector<TextNumbers> text_numbers(RunContext& run, const std::vector<GroupText>& texts, int64_t step);

// The margin by which a document's better answer is to lead; 0 if the corpus has none.
double margin_of(const corpus::Blend& blend, int64_t document);

// The head's loss over consecutive groups, with their margins.
HeadOutcome outcome_of(const config::RunConfig& config, const session::DataPhase& phase,
                       const std::vector<TextNumbers>& numbers, const std::vector<double>& margins);

class TextGroups final : public StepSource {
 public:
  // The run is open and outlives it.
  explicit TextGroups(RunContext& run);

  // Collective, called by the thread that runs steps.
  std::unique_ptr<PreparedStep> next() override;

 private:
  struct Batch {
    std::vector<GroupText> texts;
    std::vector<double> margins;  // by group
  };
  Batch draw();

  RunContext& run_;
  const session::DataPhase& data_;
  corpus::Sampler documents_;
  int64_t step_;
};

}  // namespace sluice::run

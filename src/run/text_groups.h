// Steps on texts that belong together: a better and a worse answer; a text, one that it is to lie near, and
// one that it is not. Their loss is over the whole batch, however its texts lie on ranks: a forward before
// the step finds the numbers of all of them, and with these the gradient by each, which the step's own
// backward begins with (Gao et al., Scaling Deep Contrastive Learning Batch Size, 2021).
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

// The texts of a document's group, of a phase's blends; none where one does not fit.
std::vector<GroupText> group_texts(const config::RunConfig& config, const session::DataPhase& phase,
                                   const corpus::Blend& first, int64_t document);

// Collective: the numbers of each text, the same on all ranks, under the plan that an evaluation of them
// gets. `step` names it, for people.
std::vector<TextNumbers> text_numbers(RunContext& run, const std::vector<GroupText>& texts, int64_t step);

// By how much the better of a document's two answers is to lead; 0 where the corpus says nothing of it.
double margin_of(const corpus::Blend& blend, int64_t document);

// The head's loss over groups that follow each other, and have such margins.
HeadOutcome outcome_of(const config::RunConfig& config, const session::DataPhase& phase,
                       const std::vector<TextNumbers>& numbers, const std::vector<double>& margins);

class TextGroups final : public StepSource {
 public:
  // The run is open and outlives it.
  explicit TextGroups(RunContext& run);

  // Collective, by the thread that runs steps.
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

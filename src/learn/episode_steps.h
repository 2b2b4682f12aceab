// Steps on episodes: their sequences and tokens for the graph, and their log-probabilities from an
// evaluation. Neighbouring episodes with the same prompt may be branches of one sequence
// (session/prompt_responses.h).
#pragma once

#include <vector>

#include "report/step_record.h"
#include "rl/episode.h"
#include "run/run_context.h"

namespace sluice::learn {

// The tokens of a mini-batch. A sequence has the episode of its document's number; if it has branches, they
// have the episodes from there on. REQUIRES: the mini-batch outlives this.
class EpisodeTokens final : public run::TokenSource {
 public:
  explicit EpisodeTokens(const rl::MiniBatch& episodes) : episodes_(episodes) {}
  void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                  runtime::LanePartTokens& rows) const override;
  // Adds the figures of a row that layers::policy_loss takes, too.
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                   runtime::LanePartTokens& rows) const override;

 private:
  static void add_targets(const rl::Episode& episode, base::Interval tokens, runtime::LanePartTokens& rows);

  const rl::MiniBatch& episodes_;
};

// A planned step with its tokens. Call it inside Control::together(), which shares errors of planning.
run::PreparedStep prepare_episodes(run::RunContext& run, const rl::MiniBatch& episodes, int64_t step,
                                   graph::Purpose purpose);

// Collective: the model's log-probabilities of each response's tokens, the same on every rank, under the plan
// that an evaluation of the mini-batch gets. `step` names the evaluation for people. Adds the evaluation's
// figures to `act`.
std::vector<std::vector<double>> log_probabilities(run::RunContext& run, const rl::MiniBatch& episodes,
                                                   int64_t step, report::ActRecord& act);

}  // namespace sluice::learn

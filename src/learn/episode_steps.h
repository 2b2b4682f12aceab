// Steps on episodes: their sequences and tokens for the graph, and their log-probabilities from an
// evaluation. Neighbouring episodes with the same prompt may be branches of one sequence
// (session/prompt_responses.h).
#pragma once

#include <vector>

#include "rl/episode.h"
#include "run/run_context.h"

namespace sluice::learn {

// Of a mini-batch, of whose episodes a sequence has that of its document's number, or of its branches those
// from there on. Borrows it.
class EpisodeTokens final : public run::TokenSource {
 public:
  explicit EpisodeTokens(const rl::MiniBatch& episodes) : episodes_(episodes) {}
  void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                  runtime::LanePartTokens& rows) const override;
  // With what layers::policy_loss takes of a row.
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& scheduled,
                   runtime::LanePartTokens& rows) const override;

 private:
  static void add_targets(const rl::Episode& episode, base::Interval tokens, runtime::LanePartTokens& rows);

  const rl::MiniBatch& episodes_;
};

// Planned, with tokens. Collective where planning's mistakes are told.
run::PreparedStep prepare_episodes(run::RunContext& run, const rl::MiniBatch& episodes, int64_t step,
                                   graph::Purpose purpose);

// Collective: the model's log-probabilities of each response's tokens, the same on every rank, under the plan
// that an evaluation of the mini-batch gets. `step` names it, for people.
std::vector<std::vector<double>> log_probabilities(run::RunContext& run, const rl::MiniBatch& episodes,
                                                   int64_t step);

}  // namespace sluice::learn

// Steps on episodes: their tokens for the graph, and their log-probabilities from an evaluation.
#pragma once

#include <vector>

#include "rl/episode.h"
#include "train/run_context.h"

namespace sluice::train {

// Of a mini-batch, whose episodes are the sequences' documents. Borrows it.
class EpisodeTokens final : public TokenSource {
 public:
  explicit EpisodeTokens(const rl::MiniBatch& episodes) : episodes_(episodes) {}
  void add_tokens(const strategy::Sequence& sequence, const strategy::Piece& piece,
                  runtime::MicroBatchTokens& rows) const override;
  // With what layers::policy_loss takes of a row.
  void add_targets(const strategy::Sequence& sequence, const strategy::Piece& piece,
                   runtime::MicroBatchTokens& rows) const override;

 private:
  const rl::MiniBatch& episodes_;
};

std::vector<strategy::Sequence> sequences_of(const rl::MiniBatch& episodes);

// Collective: the model's log-probabilities of each response's tokens, the same on every rank, under the plan
// that an evaluation of the mini-batch gets. `step` names it, for people.
std::vector<std::vector<double>> log_probabilities(RunContext& run, const rl::MiniBatch& episodes,
                                                   int64_t step);

}  // namespace sluice::train

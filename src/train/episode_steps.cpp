#include "train/episode_steps.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "layers/policy_loss.h"

namespace sluice::train {
namespace {

using strategy::Piece;
using strategy::Sequence;

// Calls visit(token) for the places in a response of the targets of a piece's positions.
template <typename Visit>
void for_each_target(const rl::Episode& episode, const Piece& piece, const Visit& visit) {
  const int64_t first = std::max<int64_t>(piece.begin + 1, episode.prompt_tokens);
  const int64_t end = std::min<int64_t>(piece.end + 1, std::ssize(episode.tokens));
  for (int64_t target = first; target < end; ++target) visit(target - episode.prompt_tokens);
}

// What travels of a row.
struct RowLogProbability {
  int64_t episode = 0;
  int64_t token = 0;  // of its response
  double value = 0;
};

}  // namespace

void EpisodeTokens::add_tokens(const Sequence& sequence, const Piece& piece,
                               runtime::MicroBatchTokens& rows) const {
  const std::vector<int32_t>& tokens = episodes_[static_cast<size_t>(sequence.document)].tokens;
  rows.tokens.insert(rows.tokens.end(), tokens.begin() + piece.begin, tokens.begin() + piece.end);
}

void EpisodeTokens::add_targets(const Sequence& sequence, const Piece& piece,
                                runtime::MicroBatchTokens& rows) const {
  const rl::Episode& episode = episodes_[static_cast<size_t>(sequence.document)];
  std::vector<int64_t> targets(static_cast<size_t>(piece.tokens()), -1);
  for_each_target(episode, piece, [&](int64_t token) {
    const int64_t place = episode.prompt_tokens + token;
    targets[static_cast<size_t>(place - 1 - piece.begin)] = episode.tokens[static_cast<size_t>(place)];
    const auto known = [&](const std::vector<double>& values) {
      return values.empty() ? layers::PolicyRow::kNone : values[static_cast<size_t>(token)];
    };
    const auto figures = layers::PolicyRow{.advantage = episode.advantage,
                                           .weight = episode.weight,
                                           .old = known(episode.old),
                                           .reference = known(episode.reference),
                                           .sampled = known(episode.sampled)}
                             .figures();
    rows.given.insert(rows.given.end(), figures.begin(), figures.end());
  });
  rows.targets.insert(rows.targets.end(), targets.begin(), targets.end());
}

std::vector<Sequence> sequences_of(const rl::MiniBatch& episodes) {
  std::vector<Sequence> sequences;
  for (const rl::Episode& episode : episodes) {
    sequences.push_back({.document = std::ssize(sequences),
                         .length_tokens = std::ssize(episode.tokens),
                         .loss_tokens = episode.response_tokens()});
  }
  return sequences;
}

std::vector<std::vector<double>> log_probabilities(RunContext& run, const rl::MiniBatch& episodes,
                                                   int64_t step) {
  const StepInputs inputs = run.planning();
  PreparedStep prepared;
  run.control().together("planning an evaluation of responses", [&] {
    const EpisodeTokens tokens(episodes);
    prepared = prepare_step(inputs, sequences_of(episodes), &tokens, step, graph::Purpose::kEvaluate);
  });
  std::vector<std::vector<double>> losses;
  {
    const auto running = run.activity().nodes(base::text("evaluating responses of step ", step));
    run.engine().evaluate(prepared.graph, prepared.tokens, &losses);
  }
  std::vector<RowLogProbability> own;
  const auto micro_batches = pieces_of_rank(prepared.plan, inputs.world_size, inputs.rank);
  for (size_t m = 0; m < losses.size(); ++m) {
    auto loss = losses[m].begin();
    for (const Piece& piece : micro_batches[m]) {
      const auto episode = prepared.plan.sequences[static_cast<size_t>(piece.sequence)].document;
      for_each_target(episodes[static_cast<size_t>(episode)], piece, [&](int64_t token) {
        own.push_back({episode, token, -*loss++});
      });
    }
    SLUICE_ASSERT(loss == losses[m].end(), "losses of other rows than those with a target");
  }
  std::vector<std::vector<double>> all;
  for (const rl::Episode& episode : episodes)
    all.emplace_back(static_cast<size_t>(episode.response_tokens()), 0.0);
  for (const std::string& bytes : run.control().gather_texts(
           {reinterpret_cast<const char*>(own.data()), own.size() * sizeof(RowLogProbability)})) {
    std::vector<RowLogProbability> rows(bytes.size() / sizeof(RowLogProbability));
    std::memcpy(rows.data(), bytes.data(), bytes.size());
    for (const RowLogProbability& row : rows)
      all[static_cast<size_t>(row.episode)][static_cast<size_t>(row.token)] = row.value;
  }
  return all;
}

}  // namespace sluice::train

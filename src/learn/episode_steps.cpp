#include "learn/episode_steps.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/interval.h"
#include "base/text.h"
#include "layers/policy_loss.h"
#include "session/prompt_responses.h"
#include "strategy/branches.h"

namespace sluice::learn {
namespace {

using strategy::Piece;
using strategy::Sequence;

// Calls visit(episode, tokens) for a piece's tokens of each episode. Tokens of a prefix that episodes share
// count for the first of them alone.
template <typename Visit>
void for_each_episode(const Sequence& sequence, const Piece& scheduled, const Visit& visit) {
  strategy::for_each_part(sequence, scheduled, [&](int branch, base::Interval tokens) {
    visit(sequence.document + std::max(branch, 0), tokens);
  });
}

// Calls visit(token) for these tokens' targets, by their places in the response.
template <typename Visit>
void for_each_target(const rl::Episode& episode, base::Interval tokens, const Visit& visit) {
  const int64_t first = std::max<int64_t>(tokens.begin + 1, episode.prompt_tokens);
  const int64_t end = std::min<int64_t>(tokens.end + 1, std::ssize(episode.tokens));
  for (int64_t target = first; target < end; ++target) visit(target - episode.prompt_tokens);
}

// The log-probability of a row, as ranks send it.
struct RowLogProbability {
  int64_t episode = 0;
  int64_t token = 0;  // place in its response
  double value = 0;
};

}  // namespace

void EpisodeTokens::add_tokens(const Sequence& sequence, const Piece& scheduled,
                               runtime::LanePartTokens& rows) const {
  for_each_episode(sequence, scheduled, [&](int64_t episode, base::Interval part) {
    const std::vector<int32_t>& tokens = episodes_[static_cast<size_t>(episode)].tokens;
    rows.tokens.insert(rows.tokens.end(), tokens.begin() + part.begin, tokens.begin() + part.end);
  });
}

void EpisodeTokens::add_targets(const Sequence& sequence, const Piece& scheduled,
                                runtime::LanePartTokens& rows) const {
  for_each_episode(sequence, scheduled, [&](int64_t episode, base::Interval part) {
    add_targets(episodes_[static_cast<size_t>(episode)], part, rows);
  });
}

void EpisodeTokens::add_targets(const rl::Episode& episode, base::Interval tokens,
                                runtime::LanePartTokens& rows) {
  std::vector<int64_t> targets(static_cast<size_t>(tokens.size()), -1);
  for_each_target(episode, tokens, [&](int64_t token) {
    const int64_t place = episode.prompt_tokens + token;
    targets[static_cast<size_t>(place - 1 - tokens.begin)] = episode.tokens[static_cast<size_t>(place)];
    const auto known = [&](const std::vector<double>& values) {
      return values.empty() ? layers::PolicyRow::kNone : values[static_cast<size_t>(token)];
    };
    const double advantage =
        episode.advantages.empty() ? episode.advantage : episode.advantages[static_cast<size_t>(token)];
    const auto figures = layers::PolicyRow{.advantage = advantage,
                                           .weight = episode.weight,
                                           .old = known(episode.old_log_probs),
                                           .reference = known(episode.ref_log_probs),
                                           .sampled = known(episode.rollout_log_probs)}
                             .figures();
    rows.given.insert(rows.given.end(), figures.begin(), figures.end());
  });
  rows.targets.insert(rows.targets.end(), targets.begin(), targets.end());
}

namespace {

std::vector<session::PromptResponses> answers_of(const rl::MiniBatch& episodes) {
  std::vector<session::PromptResponses> answers;
  std::span<const int32_t> prompt;
  for (const rl::Episode& episode : episodes) {
    const auto own = std::span(episode.tokens).first(static_cast<size_t>(episode.prompt_tokens));
    if (answers.empty() || !std::ranges::equal(own, prompt)) answers.push_back({episode.prompt_tokens, {}});
    answers.back().lengths.push_back(std::ssize(episode.tokens));
    prompt = own;
  }
  return answers;
}

}  // namespace

run::PreparedStep prepare_episodes(run::RunContext& run, const rl::MiniBatch& episodes, int64_t step,
                                   graph::Purpose purpose) {
  const run::StepInputs inputs = run.planning().inputs();
  // A teacher that reads the same sequences may not be able to branch.
  const bool shares =
      inputs.earlier.empty() && session::shares_prompts(run.config(), inputs.planner.cost().options().model);
  const std::vector<session::PromptResponses> answers = answers_of(episodes);
  const std::vector<Sequence> sequences =
      shares ? session::best_response_sequences(inputs.planner, step, answers)
             : session::response_sequences(answers, 1);
  const EpisodeTokens tokens(episodes);
  run::PreparedStep prepared = run::prepare_step(inputs, sequences, &tokens, step, purpose);
  prepared.known.shared_prompt_tokens = session::shared_tokens(sequences);
  return prepared;
}

std::vector<std::vector<double>> log_probabilities(run::RunContext& run, const rl::MiniBatch& episodes,
                                                   int64_t step, report::ActRecord& act) {
  run::PreparedStep prepared;
  run.control().together("planning an evaluation of responses", [&] {
    prepared = prepare_episodes(run, episodes, step, graph::Purpose::kEvaluate);
  });
  runtime::RowFigures rows;
  {
    const auto running = run.activity().nodes(base::text("evaluating responses of step ", step));
    const runtime::StepResult result = run.engine().evaluate(prepared.graph, prepared.tokens, &rows);
    report::add({.time_ns = result.timing.step_ns,
                 .predicted_ns = prepared.graph.makespan_ns,
                 .peak_bytes = result.peak_bytes,
                 .predicted_peak_bytes = prepared.predicted_peak_bytes},
                act);
  }
  const std::vector<std::vector<double>>& losses = rows.losses;
  std::vector<RowLogProbability> own;
  const auto micro_batches = run::pieces_of_rank(prepared.plan, run.control().world_size(), run.rank());
  for (size_t m = 0; m < losses.size(); ++m) {
    auto loss = losses[m].begin();
    for (const Piece& scheduled : micro_batches[m]) {
      const Sequence& sequence = prepared.plan.sequences[static_cast<size_t>(scheduled.sequence)];
      for_each_episode(sequence, scheduled, [&](int64_t episode, base::Interval part) {
        for_each_target(episodes[static_cast<size_t>(episode)], part, [&](int64_t token) {
          own.push_back({episode, token, -*loss++});
        });
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

}  // namespace sluice::learn

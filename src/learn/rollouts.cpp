#include "learn/rollouts.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/interval.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/learnt_rewards.h"
#include "learn/episode_steps.h"
#include "learn/token_advantages.h"
#include "session/sampling.h"

namespace sluice::learn {
namespace {

using base::text;

std::vector<double> rewards_of(const std::vector<Response>& responses) {
  std::vector<double> rewards;
  for (const Response& response : responses) rewards.push_back(response.reward);
  return rewards;
}

// The number of prompts in a draw, which are answered together.
int64_t prompts_of_draw(const config::RlConfig& config, const rl::Objective& objective) {
  return objective.dynamic_sampling ? config.gen_batch_size.value_or(config.prompts_per_step)
                                    : config.prompts_per_step;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(values.size(), 1));
}

}  // namespace

Rollouts::Rollouts(run::RunContext& run, RolloutGenerator& generator, run::Critic* critic)
    : run_(run),
      generator_(generator),
      critic_(critic),
      config_(run.config().rl),
      objective_(rl::objective_of(config_)),
      blend_(run.start().data().phases.front().training),
      prompts_(blend_.sources(), session::one_by_one(run.start().data().phases.front().sampling)),
      step_(run.start().state().step) {
  const run::RunState& resumed = run.start().state();
  if (resumed.sampler) prompts_.restore(*resumed.sampler);
  if (resumed.rollout.is_null()) return;
  rl::Rollout rollout = rl::rollout_from_json(resumed.rollout, "the rollout in the checkpoint");
  std::ranges::move(rollout.batches, std::back_inserter(batches_));
  generator_.set_previous_response_lengths(std::move(rollout.response_lengths));
}

std::unique_ptr<run::PreparedStep> Rollouts::next() {
  if (step_ >= run_.config().train.steps) return nullptr;
  if (batches_.empty()) roll_out();
  if (batches_.empty()) return nullptr;
  const rl::MiniBatch batch = std::move(batches_.front());
  batches_.pop_front();
  auto step = std::make_unique<run::PreparedStep>();
  run_.control().together("planning an update", [&] {
    *step = prepare_episodes(run_, batch, step_, graph::Purpose::kTrain);
    if (critic_ == nullptr) return;
    step->critic = std::make_shared<const run::PreparedStep>(critic_->prepare(batch, step_));
    step->agreement ^= step->critic->agreement;
  });
  told_.shared_prompt_tokens = step->known.shared_prompt_tokens;
  step->known = std::exchange(told_, {});
  ++step_;
  step->sampler_after = prompts_.state();
  step->sampler_after.step = step_;
  step->rollout_after =
      rl::to_json({{batches_.begin(), batches_.end()}, generator_.previous_response_lengths()});
  return step;
}

std::vector<Rollouts::Group> Rollouts::draw() {
  std::vector<Group> groups;
  std::vector<rl::Prompt> prompts;
  std::vector<uint64_t> numbers;
  const int64_t wanted = prompts_of_draw(config_, objective_);
  for (int64_t tries = 0; std::ssize(groups) < wanted; ++tries) {
    if (tries > 100 * wanted) {
      throw base::InputError(text("of ", tries, " documents only ", groups.size(),
                                  " have a prompt that leaves room for a response in ",
                                  run_.config().data.context_length, " tokens: raise data.context_length"));
    }
    const corpus::Sample sample = prompts_.next().samples.front();
    std::optional<rl::Prompt> question = rl::prompt_of(blend_, sample.document);
    if (!question || std::ssize(question->tokens) >= run_.config().data.context_length) continue;
    // The number of documents that were passed makes prompts' random draws differ, in every epoch.
    const corpus::SamplerState state = prompts_.state();
    numbers.push_back(std::accumulate(
        state.cursors.begin(), state.cursors.end(), uint64_t{0},
        [](uint64_t sum, const auto& cursor) { return sum + static_cast<uint64_t>(cursor.position); }));
    prompts.push_back(*question);
    groups.push_back({std::move(*question), {}});
  }
  std::vector<std::vector<Response>> responses = generator_.generate_and_score(
      prompts, numbers, config_.num_generations, RolloutGenerator::SamplingMode::kSampled);
  for (size_t i = 0; i < groups.size(); ++i) groups[i].responses = std::move(responses[i]);
  const RolloutTimes& times = generator_.times();
  tell_rollout(times, to_text(run_.rollout_strategy().strategy()), told_);
  told_.reward_ns = told_.reward_ns.value_or(0) + times.reward_ns;
  if (times.learnt_rewards) {
    if (told_.acts.empty()) told_.acts.push_back({.name = "rewards"});
    report::add(*times.learnt_rewards, told_.acts.front());
  }
  settle(groups);
  return groups;
}

void Rollouts::settle(std::vector<Group>& groups) {
  int64_t bad = told_.bad_rewards.value_or(0);
  for (Group& group : groups) {
    bad += std::ranges::count_if(group.responses, &Response::faulty);
    if (config_.on_bad_reward == config::OnBadReward::kDrop)
      std::erase_if(group.responses, [](const Response& response) { return response.faulty; });
  }
  std::erase_if(groups, [](const Group& group) { return group.responses.empty(); });
  told_.bad_rewards = bad;
}

void Rollouts::keep(std::vector<Group>& drawn, std::vector<Group>& kept) {
  for (Group& group : drawn) {
    if (std::ssize(kept) == config_.prompts_per_step) return;
    if (objective_.dynamic_sampling && !rl::has_variance(rewards_of(group.responses))) continue;
    kept.push_back(std::move(group));
  }
}

void Rollouts::describe(const std::vector<Group>& groups) {
  // Only reward functions have a right value; a model's score has none.
  const size_t checked = config::reward_functions(config_.reward).size();
  std::vector<double> rewards, right, learnt, entropies;
  std::vector<int64_t> lengths;
  for (const Group& group : groups) {
    for (const Response& response : group.responses) {
      rewards.push_back(response.reward);
      right.push_back(response.reward - response.learnt_reward >= static_cast<double>(checked) ? 1 : 0);
      learnt.push_back(response.learnt_reward);
      lengths.push_back(std::ssize(response.tokens));
      for (const double log_p : response.log_probabilities) entropies.push_back(-log_p);
    }
  }
  if (lengths.empty()) return;
  std::ranges::sort(lengths);
  const auto count = static_cast<double>(lengths.size());
  told_.reward = mean_of(rewards);
  if (checked > 0) told_.accuracy = mean_of(right);
  if (checked < config_.reward.size()) told_.learnt_reward = mean_of(learnt);
  told_.entropy = mean_of(entropies);
  told_.response_mean =
      static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) / count;
  told_.response_p99 = lengths[(lengths.size() - 1) * 99 / 100];
  const int64_t every = run_.config().log.completions_every;
  if (run_.rank() == 0 && every > 0 && step_ % every == 0) told_.completions = examples_of(groups);
}

// The best and the worst response to each of the first prompts.
std::vector<report::Completion> Rollouts::examples_of(const std::vector<Group>& groups) const {
  constexpr size_t kPrompts = 2;
  std::vector<report::Completion> examples;
  for (size_t g = 0; g < std::min(kPrompts, groups.size()); ++g) {
    const Group& group = groups[g];
    if (group.responses.empty()) continue;
    const auto [worst, best] = std::ranges::minmax_element(group.responses, {}, &Response::reward);
    const auto add = [&](const Response& response) {
      const std::vector<int32_t>& prompt = group.question.tokens;
      const auto shown = [](const std::string& words) {
        return base::printable(words, base::Layout::kLines);
      };
      examples.push_back({.step = step_,
                          .prompt = shown(generator_.text_of(prompt)),
                          .completion = shown(generator_.text_of(response.tokens, prompt)),
                          .reward = response.reward,
                          .tokens = std::ssize(response.tokens),
                          .finish_reason = response.finish_reason ? "stop" : "length"});
    };
    add(*best);
    if (worst != best) add(*worst);
  }
  return examples;
}

void Rollouts::roll_out() {
  told_ = {};
  std::vector<Group> all, kept;
  int64_t draws = 0;
  const int64_t most = objective_.dynamic_sampling ? config_.max_resamples : 1;
  while (draws < most && std::ssize(kept) < config_.prompts_per_step) {
    std::vector<Group> drawn = draw();
    ++draws;
    all.insert(all.end(), drawn.begin(), drawn.end());
    keep(drawn, kept);
  }
  describe(all);
  told_.sampling_rounds = draws;
  told_.groups_kept = std::ssize(kept);
  const auto varies = [](const Group& group) { return rl::has_variance(rewards_of(group.responses)); };
  const bool compares = config_.algorithm != config::RlAlgorithm::kPpo && !objective_.dynamic_sampling;
  if (compares && told_.reward && std::ranges::none_of(kept, varies) && run_.rank() == 0) {
    base::log_warning(
        text("step ", step_ + 1, ": all responses to each prompt have the same reward, ", *told_.reward,
             " in the mean, so their advantages are 0: take easier prompts, a better first model, or ",
             "more of rl.num_generations"));
  }
  if (kept.empty()) {
    if (run_.rank() == 0)
      base::log_info(text(
          "nothing is left to learn: in ", draws, " draws of ", prompts_of_draw(config_, objective_),
          " prompts ",
          told_.reward ? text("all responses to each had the same reward, ", *told_.reward, " in the mean")
                       : "no response has a reward"));
    return;
  }
  shape(kept);
}

std::vector<rl::Episode> Rollouts::episodes_of(const Group& group) const {
  std::vector<double> rewards = rewards_of(group.responses);
  for (size_t i = 0; i < rewards.size(); ++i) {
    rewards[i] += rl::overlong_penalty(std::ssize(group.responses[i].tokens), config_.max_completion_length,
                                       objective_.overlong_buffer);
  }
  const std::vector<double> advantages = rl::advantages(rewards, objective_.baseline);
  std::vector<rl::Episode> episodes;
  for (size_t i = 0; i < rewards.size(); ++i) {
    const Response& response = group.responses[i];
    rl::Episode& episode = episodes.emplace_back();
    episode.tokens = group.question.tokens;
    episode.prompt_tokens = std::ssize(episode.tokens);
    episode.tokens.insert(episode.tokens.end(), response.tokens.begin(), response.tokens.end());
    episode.reward = rewards[i];
    episode.advantage = advantages[i];
    episode.rollout_log_probs = response.log_probabilities;
  }
  return episodes;
}

// Cuts the rollout into mini-batches, and computes the other figures that their losses take.
void Rollouts::shape(std::vector<Group>& groups) {
  const int64_t updates = std::min<int64_t>(config_.updates_per_rollout, std::ssize(groups));
  for (int64_t update = 0; update < updates; ++update) {
    const base::Interval part = base::even_part(std::ssize(groups), updates, update);
    rl::MiniBatch& batch = batches_.emplace_back();
    for (int64_t g = part.begin; g < part.end; ++g) {
      for (rl::Episode& episode : episodes_of(groups[static_cast<size_t>(g)]))
        batch.push_back(std::move(episode));
    }
    std::vector<int64_t> tokens;
    for (const rl::Episode& episode : batch) tokens.push_back(episode.response_tokens());
    const std::vector<double> weights =
        rl::token_weights(tokens, objective_.loss_agg_mode, config_.max_completion_length);
    for (size_t i = 0; i < batch.size(); ++i) batch[i].weight = weights[i];
  }
  // The first update needs no old log-probabilities: they are its own. Rewards of tokens take them anyway.
  report::ActRecord policy{.name = "policy"};
  for (size_t update = objective_.reward_kl > 0 ? 0 : 1; update < batches_.size(); ++update) {
    std::vector<std::vector<double>> old = log_probabilities(run_, batches_[update], step_, policy);
    for (size_t i = 0; i < old.size(); ++i) batches_[update][i].old_log_probs = std::move(old[i]);
  }
  if (policy.time_ns > 0) told_.acts.push_back(policy);
  if (objective_.kl > 0 || objective_.reward_kl > 0) find_reference();
  if (critic_ != nullptr)
    told_.acts.push_back(find_token_advantages(*critic_, config_, objective_, step_, batches_));
}

void Rollouts::find_reference() {
  report::ActRecord act{.name = "reference"};
  const run::Reference::InPlace reference(run_.reference());
  for (rl::MiniBatch& batch : batches_) {
    std::vector<std::vector<double>> found = log_probabilities(run_, batch, step_, act);
    for (size_t i = 0; i < found.size(); ++i) batch[i].ref_log_probs = std::move(found[i]);
  }
  told_.acts.push_back(act);
}

}  // namespace sluice::learn

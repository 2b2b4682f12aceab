#include "learn/learnt_rewards.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "run/text_steps.h"

namespace sluice::learn {

using base::text;

LearntRewards::LearntRewards(run::RunContext& run) : run_(run) {
  std::vector<session::OtherModel> found;
  run.control().together("opening reward models", [&] { found = session::reward_models(run.config()); });
  for (const session::OtherModel& model : found) {
    models_.push_back(std::make_unique<run::Trunk>(run, model, run::Trunk::Options{}));
    models_.back()->load();
  }
}

std::vector<double> LearntRewards::scores(std::span<const rl::Prompt> prompts,
                                          const std::vector<std::vector<Response>>& responses) {
  std::vector<run::GroupText> texts;
  for (size_t i = 0; i < responses.size(); ++i) {
    for (const Response& response : responses[i]) {
      run::GroupText& made = texts.emplace_back(run::GroupText{prompts[i].tokens, {}});
      made.tokens.insert(made.tokens.end(), response.tokens.begin(), response.tokens.end());
    }
  }
  survive::Control& control = run_.control();
  std::vector<double> sums(texts.size());
  newest_ = {.name = "rewards"};
  for (const std::unique_ptr<run::Trunk>& model : models_) {
    run::PreparedStep prepared;
    control.together("planning an evaluation of responses", [&] {
      prepared = run::prepare_texts(model->inputs(), texts, rewarded_, graph::Purpose::kEvaluate);
    });
    const runtime::RowFigures rows =
        model->evaluate(prepared.graph, prepared.tokens, text("rewarding responses, rollout ", rewarded_));
    const std::vector<run::TextNumbers> numbers =
        run::numbers_by_text(prepared, control.world_size(), run_.rank(), rows,
                             [&](const std::string& own) { return control.gather_texts(own); });
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i].front();
    report::add(model->newest(), newest_);
  }
  ++rewarded_;
  return sums;
}

void LearntRewards::add_to(std::span<const rl::Prompt> prompts,
                           std::vector<std::vector<Response>>& responses) {
  const std::vector<double> found = scores(prompts, responses);
  const bool stops = run_.config().rl.on_bad_reward == config::OnBadReward::kStop;
  run_.control().together("adding reward models' scores", [&] {
    auto score = found.begin();
    for (std::vector<Response>& of_prompt : responses) {
      for (Response& response : of_prompt) {
        const double own = *score++;
        if (!std::isfinite(own)) {
          const std::string fault =
              text("a reward model scores a response of ", response.tokens.size(), " tokens as ", own);
          if (stops)
            throw base::RunError(text(fault, " (with rl.on_bad_reward zero or drop the run goes on)"));
          response.faulty = true;
          response.reward = 0;
        }
        if (response.faulty) continue;
        response.learnt_reward = own;
        response.reward += own;
      }
    }
  });
}

}  // namespace sluice::learn

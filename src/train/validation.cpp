#include "train/validation.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "run/plan_ahead.h"
#include "run/sequence_numbers.h"
#include "run/text_groups.h"
#include "run/text_retrieval.h"

namespace sluice::train {

bool Validation::due(int64_t steps_done, bool last) const {
  const int64_t every = run_.config().train.eval_every;
  return every > 0 && (last || steps_done % every == 0);
}

void Validation::make_up() {
  const int64_t done = run_.start().state().step;
  if (done == 0 || !due(done, done >= run_.config().train.steps)) return;
  if (run_.control().any(run_.rank() == 0 && !reporter_.was_evaluated())) evaluate(done - 1);
}

bool Validation::evaluate(int64_t after_step) {
  const auto evaluating = run_.activity().own(base::text("evaluating after step ", after_step));
  std::vector<report::EvaluationMetrics> results;
  if (!evaluate_sets(after_step, "", results)) return false;
  best_.add(after_step + 1, results);
  for (size_t i = 0; adapters_ && i < adapters_->names().size(); ++i) {
    const run::OtherAdapters::InPlace other(*adapters_, i);
    if (!evaluate_sets(after_step, adapters_->names()[i], results)) return false;
  }
  reporter_.write(results);
  return true;
}

bool Validation::evaluate_sets(int64_t after_step, const std::string& adapter,
                               std::vector<report::EvaluationMetrics>& results) {
  for (const session::ValidationData& set : run_.start().data().at(after_step).validation) {
    if (set.batches.empty()) continue;
    auto result = evaluate(set, after_step);
    if (!result) return false;
    if (!adapter.empty()) {
      result->adapter = adapter;
      result->set = base::text(set.name, set.name.empty() ? "" : ", ", "adapter ", adapter);
    }
    // Without targets there is no mean loss; a warning at the start named such sets.
    if (result->targets > 0 || result->reward) results.push_back(*result);
  }
  return true;
}

bool Validation::is_out_of_patience() {
  const int64_t patience = run_.config().train.patience;
  if (patience == 0 || !run_.control().any(best_.since_best() >= patience)) return false;
  if (run_.rank() == 0) {
    base::log_info(base::text("train.patience ends the run: of ", best_.since_best(),
                              " evaluations none was better than the one after ",
                              base::human_count(best_.best_step(), "step", "steps")));
  }
  return true;
}

std::optional<report::EvaluationMetrics> Validation::evaluate(const session::ValidationData& set,
                                                              int64_t after_step) {
  if (run_.config().head.pairs()) return evaluate_groups(set, after_step);
  double loss_sum = 0;
  report::EvaluationMetrics metrics{.step = after_step, .set = set.name};
  std::optional<run::ClassScores> scores;
  if (set.blend.label_rule() != nullptr) scores.emplace(*set.blend.label_rule());
  run::PlanAhead ahead(run::evaluation_steps(run_.planning().inputs(), set));
  for (size_t i = 0; i < set.batches.size(); ++i) {
    if (run_.control().any(stop_.requested())) return std::nullopt;
    std::unique_ptr<run::PreparedStep> step;
    run_.control().together("planning the evaluation", [&] { step = ahead.next(); });
    const auto running = run_.activity().nodes(base::text("evaluating after step ", after_step));
    runtime::RowFigures rows;
    const runtime::StepResult result =
        run_.engine().evaluate(step->graph, step->tokens, scores ? &rows : nullptr);
    if (scores) add_scores(set, *step, rows, *scores);
    loss_sum += result.loss_sum;
    metrics.targets += result.targets;
    if (metrics.fallback.empty()) metrics.fallback = step->fallback;
  }
  if (generator_ != nullptr) answer(set, metrics);
  if (scores) {
    metrics.accuracy = scores->accuracy();
    metrics.f1 = scores->f1();
  }
  metrics.validation_loss = metrics.targets > 0 ? loss_sum / static_cast<double>(metrics.targets)
                                                : std::numeric_limits<double>::quiet_NaN();
  return metrics;
}

// Computes the numbers of all groups first, because a loss may cover all of them.
std::optional<report::EvaluationMetrics> Validation::evaluate_groups(const session::ValidationData& set,
                                                                     int64_t after_step) {
  const session::DataPhase& phase = run_.start().data().phases.front();
  std::vector<run::TextNumbers> numbers;
  std::vector<base::WideHash> hashes;  // by text
  std::vector<double> margins;
  for (const corpus::Batch& batch : set.batches) {
    if (run_.control().any(stop_.requested())) return std::nullopt;
    std::vector<run::GroupText> texts;
    for (const corpus::Sample& sample : batch.samples) {
      std::vector<run::GroupText> group = run::group_texts(run_.config(), phase, set.blend, sample.document);
      if (group.empty()) continue;
      for (const run::GroupText& text : group) hashes.push_back(run::text_hash(text.tokens));
      std::ranges::move(group, std::back_inserter(texts));
      margins.push_back(run::margin_of(set.blend, sample.document));
    }
    if (texts.empty()) continue;
    std::ranges::move(run::text_numbers(run_, texts, after_step), std::back_inserter(numbers));
  }
  report::EvaluationMetrics metrics{.step = after_step, .set = set.name, .targets = std::ssize(numbers)};
  if (numbers.empty()) return metrics;
  const run::HeadOutcome outcome = run::outcome_of(run_.config(), phase, numbers, margins);
  metrics.validation_loss = outcome.loss;
  metrics.accuracy = outcome.accuracy;
  metrics.margin = outcome.margin;
  if (run_.config().head.kind != config::HeadUse::kEmbed) return metrics;
  const run::RetrievalScores found = run::retrieval_scores(numbers, hashes, 1 + std::ssize(phase.partners));
  metrics.recall_at_1 = found.recall_at_1;
  metrics.recall_at_10 = found.recall_at_10;
  metrics.mrr_at_10 = found.mrr_at_10;
  metrics.ndcg_at_10 = found.ndcg_at_10;
  return metrics;
}

void Validation::add_scores(const session::ValidationData& set, const run::PreparedStep& step,
                            const runtime::RowFigures& rows, run::ClassScores& scores) {
  const auto numbers =
      run::sequence_numbers(step.plan, run_.control().world_size(), run_.rank(), step.tokens, rows,
                            [&](const std::string& own) { return run_.control().gather_texts(own); });
  for (size_t i = 0; i < numbers.size(); ++i)
    run::add_rows(set.blend, step.plan.sequences[i], numbers[i], scores);
}

// Generates the likeliest answers to the set's first prompts.
void Validation::answer(const session::ValidationData& set, report::EvaluationMetrics& metrics) {
  std::vector<rl::Prompt> prompts;
  for (const corpus::Batch& batch : set.batches) {
    for (const corpus::Sample& sample : batch.samples) {
      if (std::ssize(prompts) == run_.config().rl.val_max_samples) break;
      std::optional<rl::Prompt> prompt = rl::prompt_of(set.blend, sample.document);
      if (prompt && std::ssize(prompt->tokens) < run_.config().data.context_length)
        prompts.push_back(std::move(*prompt));
    }
  }
  if (prompts.empty()) return;
  const std::vector<uint64_t> numbers(prompts.size(), 0);
  const bool drops = run_.config().rl.on_bad_reward == config::OnBadReward::kDrop;
  double rewards = 0;
  int64_t rewarded = 0;
  for (const std::vector<learn::Response>& responses :
       generator_->generate_and_score(prompts, numbers, 1, learn::RolloutGenerator::SamplingMode::kGreedy)) {
    if (drops && responses.front().faulty) continue;
    rewards += responses.front().reward;
    ++rewarded;
  }
  if (rewarded > 0) metrics.reward = rewards / static_cast<double>(rewarded);
}

}  // namespace sluice::train

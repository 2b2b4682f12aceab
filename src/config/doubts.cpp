#include "config/doubts.h"

#include <algorithm>

#include "base/text.h"
#include "config/idle_keys.h"

namespace sluice::config {

using base::text;

namespace {

void doubt_schedule(const OptimizerConfig& optimizer, int64_t steps, std::vector<std::string>& lines) {
  const auto add = [&](const auto&... parts) { lines.push_back(text("optimizer.", parts...)); };
  const int64_t warmup = optimizer.warmup_steps;
  const bool wsd = optimizer.decay == Decay::kWsd;
  if (warmup >= steps && warmup > 1) {
    const double share = static_cast<double>(steps) / static_cast<double>(warmup);
    add("warmup_steps is ", warmup, ", but the run has ", steps, " (train.steps): the rate only rises, to ",
        optimizer.lr * share, " where optimizer.lr is ", optimizer.lr);
  }
  if (optimizer.lr == 0) add("lr is 0: nothing is learned");
  if (optimizer.decay != Decay::kConstant && optimizer.min_lr > optimizer.lr) {
    add("min_lr is ", optimizer.min_lr, ", above optimizer.lr, which is ", optimizer.lr,
        optimizer.decay == Decay::kInverseSqrt ? ": the rate never falls"
                                               : ": the rate rises to it in place of falling");
  }
  if (wsd && optimizer.decay_steps > std::max<int64_t>(0, steps - warmup)) {
    add("decay_steps is ", optimizer.decay_steps, ", but ", std::max<int64_t>(0, steps - warmup),
        " steps of the run follow the warm-up: the rate is never constant");
  }
  if (!wsd && optimizer.decay_steps > 0)
    add("decay_steps is ", optimizer.decay_steps, ", which only decay = \"wsd\" heeds: it has no effect");
}

// AdamW moves each number of an adapter by about lr a step, whatever the gradient, and alpha / rank
// multiplies what the adapters add. SmolLM2 (135M) still answers well behind steps of 0.008
// (docs/fine_tuning.md).
void doubt_adapters(const LoraConfig& lora, double lr, std::vector<std::string>& lines) {
  constexpr double kMost = 1e-2;
  if (lora.rank == 0) return;
  const double factor = lora.alpha / static_cast<double>(lora.rank);
  if (factor * lr <= kMost) return;
  lines.push_back(text("optimizer.lr is ", lr, " and lora.alpha / lora.rank is ", factor, ": their product, ",
                       factor * lr, ", is above ", kMost,
                       ", where few steps change all answers of the model: lower either"));
}

// Whether some phase has documents for evaluations.
bool is_evaluated(const RunConfig& config) {
  return config.data.validation_fraction > 0 || !config.data.validation.empty();
}

}  // namespace

std::vector<std::string> doubts(const RunConfig& config) {
  std::vector<std::string> lines;
  doubt_schedule(config.optimizer, config.train.steps, lines);
  doubt_adapters(config.lora, config.optimizer.lr, lines);
  for (const std::string& line : idle_generation_keys(config)) lines.push_back(line);
  if (config.train.eval_every > 0 && !is_evaluated(config)) {
    lines.push_back(text("train.eval_every is ", config.train.eval_every,
                         ", but there is nothing to evaluate with: give data.validation or "
                         "data.validation_fraction"));
  }
  const auto needs_evaluations = [&](const char* key) {
    if (config.train.eval_every == 0 || !is_evaluated(config))
      lines.push_back(text(key,
                           ", but no evaluation is made: give train.eval_every, and data.validation or "
                           "data.validation_fraction; it has no effect"));
  };
  if (config.train.patience > 0) needs_evaluations(text("train.patience is ", config.train.patience).c_str());
  if (config.checkpoint.keep_best) needs_evaluations("checkpoint.keep_best is true");
  if (config.cluster.preset != ClusterConfig().preset) {
    lines.push_back(text("cluster.preset is ", config.cluster.preset,
                         ": plan and simulate plan for it, a run for the machine that it is on"));
  }
  for (const PhaseConfig& phase : config.phases) {
    if (phase.step < config.train.steps) continue;
    lines.push_back(text("[[phase]] begins with step ", phase.step, ", but the run has ", config.train.steps,
                         " (train.steps): it never begins"));
  }
  return lines;
}

}  // namespace sluice::config

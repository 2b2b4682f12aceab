#include "report/closing_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "report/numbers.h"
#include "report/run_summary.h"
#include "strategy/readable.h"

namespace sluice::report {

using base::human_count;
using base::text;

namespace {

using Steps = std::span<const StepRecord>;

template <typename Project>
double median(Steps steps, Project project) {
  std::vector<double> values;
  for (const StepRecord& step : steps) values.push_back(project(step));
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The median over the steps, in percent.
std::string median_share(Steps steps, int64_t StepRecord::*part_ns, int digits) {
  const auto percent = [&](const StepRecord& step) {
    return 100 * static_cast<double>(step.*part_ns) / static_cast<double>(step.time_ns);
  };
  return text(decimal(median(steps, percent), digits), " % of the step (median)");
}

double mean_loss(Steps steps) {
  double sum = 0;
  for (const StepRecord& step : steps) sum += step.loss.value_or(0);
  return sum / static_cast<double>(steps.size());
}

// The mean loss of the first steps and of the last; no step is among both.
std::string loss_text(Steps steps) {
  const size_t window = std::min<size_t>(10, steps.size() / 2);
  if (window == 0) return text(decimal(mean_loss(steps), 4), " (of the one step)");
  const double first = mean_loss(steps.first(window));
  const double last = mean_loss(steps.last(window));
  const std::string which = window == 1 ? "" : text(" ", window);
  const std::string change = first > 0 ? text(", ", decimal(100 * (last / first - 1), 1), " %") : "";
  return text(decimal(first, 4), " (first", which, ") -> ", decimal(last, 4), " (last", which, ")", change);
}

// The rewards of rollouts; empty without rollouts.
std::string reward_text(Steps steps) {
  std::vector<double> rewards;
  for (const StepRecord& step : steps) {
    if (step.reward) rewards.push_back(*step.reward);
  }
  if (rewards.empty()) return "";
  const size_t window = std::min<size_t>(5, (rewards.size() + 1) / 2);
  const auto mean = [&](size_t first) {
    double sum = 0;
    for (size_t i = first; i < first + window; ++i) sum += rewards[i];
    return decimal(sum / static_cast<double>(window), 3);
  };
  return text(mean(0), " (first ", window, " of ",
              human_count(static_cast<int64_t>(rewards.size()), "rollout", "rollouts"), ") -> ",
              mean(rewards.size() - window), " (last ", window, ")");
}

// A line of blocks whose heights are the means of equal parts of the run; empty for fewer than 8 values.
std::string curve_text(Steps steps, std::optional<double> StepRecord::*figure) {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr size_t kLeast = 8, kMost = 48;
  std::vector<double> values;
  for (const StepRecord& step : steps) {
    if (step.*figure && std::isfinite(*(step.*figure))) values.push_back(*(step.*figure));
  }
  if (values.size() < kLeast) return "";
  std::vector<double> means;
  const size_t columns = std::min(values.size(), kMost);
  for (size_t i = 0; i < columns; ++i) {
    const auto part = std::span(values).subspan(
        i * values.size() / columns, (i + 1) * values.size() / columns - i * values.size() / columns);
    means.push_back(std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size()));
  }
  const auto [least, most] = std::ranges::minmax(means);
  std::string curve;
  for (const double mean : means) {
    const double share = most > least ? (mean - least) / (most - least) : 0;
    curve += kBlocks[static_cast<size_t>(share * 7 + 0.5)];
  }
  return text(curve, "  ", decimal(least, 4), " to ", decimal(most, 4));
}

std::string snapshots_text(Steps steps) {
  int64_t count = 0;
  const StepRecord* last = nullptr;
  for (const StepRecord& step : steps) {
    if (step.snapshot_bytes == 0) continue;
    ++count;
    last = &step;
  }
  if (count == 0) return "";
  return text(human_count(count), ", ", base::human_bytes(static_cast<double>(last->snapshot_bytes)),
              " to replicas each, ", decimal(static_cast<double>(last->snapshot_ns) / 1e6, 1),
              " ms of processor and wait");
}

}  // namespace

std::string closing_summary(const RunData& run) {
  const SystemRun& system = run.systems.front();
  const Steps steps = system.steps;
  SLUICE_ASSERT(!steps.empty(), "a summary of no step");
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) lines.push_back(name + std::string(16 - name.size(), ' ') + value);
  };
  add("steps", text(steps.front().step + 1, " to ", steps.back().step + 1));
  const std::string reward = reward_text(steps);
  if (reward.empty()) {  // a policy's loss does not show what it has learnt
    add("loss", loss_text(steps));
    add("loss curve", curve_text(steps, &StepRecord::loss));
  }
  std::map<std::string, Evaluation> last;  // each set's
  for (const Evaluation& evaluation : run.evaluations) last[evaluation.set] = evaluation;
  for (const auto& [set, evaluation] : last) {
    add("validation loss",
        text(decimal(evaluation.validation_loss, 4), " over ", human_count(evaluation.targets), " targets",
             set.empty() ? "" : " of " + set));
    std::vector<std::string> figures;
    for (const auto& [key, figure] : evaluation.figures)
      figures.push_back(text(key, " ", decimal(figure, 4)));
    add("held out", base::join(figures, ", "));
  }
  add("reward", reward);
  add("reward curve", curve_text(steps, &StepRecord::reward));
  for (const auto& [set, evaluation] : last) {
    if (!evaluation.reward) continue;
    add("held out",
        text("answers' reward ", decimal(*evaluation.reward, 3), set.empty() ? "" : " of " + set));
  }
  add("memberships", memberships_text(system.steps));
  add("snapshots", snapshots_text(steps));
  std::map<std::string, int64_t> strategies;
  for (const StepRecord& step : steps) ++strategies[step.strategy];
  lines.emplace_back("strategies");
  for (const auto& [strategy, count] : strategies)
    lines.push_back(
        text("  ", human_count(count, "step", "steps"), " of ", strategy::readable_text(strategy)));
  const auto fell_back = [](const StepRecord& step) { return !step.fallback.empty(); };
  if (const int64_t fallbacks = std::ranges::count_if(steps, fell_back); fallbacks > 0) {
    add("fallbacks", text(human_count(fallbacks, "step", "steps"),
                          " without the planner's own plan (\"fallback\" in metrics.jsonl says why)"));
  }
  std::map<std::pair<int, watch::Cause>, int64_t> alarmed;  // steps, by rank and cause
  for (const StepRecord& step : steps) {
    for (const watch::Alarm& alarm : step.alarms) ++alarmed[{alarm.rank, alarm.cause}];
  }
  for (const auto& [of, count] : alarmed)
    add("held up", text("by rank ", of.first, "'s ", watch::name_of(of.second), " for ",
                        human_count(count, "step", "steps")));
  const auto slower =
      std::ranges::find_if(steps, [](const StepRecord& step) { return !step.degraded.empty(); });
  if (slower != steps.end()) add("degraded", slower->degraded);
  int64_t unfused = 0;
  for (const StepRecord& step : steps) unfused += step.unfused_attention;
  if (unfused > 0) {
    add("attention", text(human_count(unfused, "call", "calls"),
                          " by plain operators, for no fused kernel takes them (docs/supported_models.md)"));
  }
  const double step_ns = median(steps, [](auto& step) { return static_cast<double>(step.time_ns); });
  const double rate = median(steps, [](auto& step) {
    return 1e9 * static_cast<double>(step.tokens) / static_cast<double>(step.time_ns);
  });
  add("median step", text(decimal(step_ns / 1e6, 1), " ms, ", human_count(std::llround(rate)), " tokens/s"));
  if (const PredictionError found = prediction_error(system); found.error >= 0) {
    add("prediction",
        text("off by ", decimal(100 * found.error, 1), " % (median); steps take ", decimal(found.drift, 3),
             " of it and are ", decimal(100 * found.spread, 1), " % off that (medians)"));
  }
  add("link exposed", median_share(steps, &StepRecord::pull_push_exposed_ns, 1));
  add("engine overhead", median_share(steps, &StepRecord::host_overhead_ns, 2));
  return base::join(lines, "\n");
}

}  // namespace sluice::report

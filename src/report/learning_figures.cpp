// The progress of a run that learns from rewards or preferences, and the shares of its time.
#include <algorithm>
#include <map>

#include "base/progress.h"
#include "base/text.h"
#include "report/figures.h"
#include "report/numbers.h"
#include "report/plot.h"

namespace sluice::report {

using base::Markup;
using base::text;

namespace {

// The figure of each rollout, at its first step, or of each step on pairs.
template <typename T>
Series series_of(const SystemRun& run, std::optional<T> StepRecord::*member, const char* title,
                 const char* style) {
  Series series{.title = title, .style = style, .points = {}};
  for (const StepRecord& step : run.steps) {
    if (const std::optional<T>& value = step.*member)
      series.points.emplace_back(static_cast<double>(step.step), static_cast<double>(*value));
  }
  return series;
}

void draw_rewards(Markup& out, const RunData& data, const SystemRun& run) {
  Chart chart{.label = "Reward over steps", .x_title = "step", .y_title = "reward", .unit = "", .series = {}};
  chart.series.push_back(series_of(run, &StepRecord::reward, "of what is drawn", "s0"));
  std::map<std::string, Series> held_out;
  for (const Evaluation& evaluation : data.evaluations) {
    if (!evaluation.reward) continue;
    Series& series = held_out[evaluation.set];
    series.points.emplace_back(static_cast<double>(evaluation.step), *evaluation.reward);
  }
  for (int style = 1; auto& [name, series] : held_out) {
    series.title = name.empty() ? "likeliest answers" : text("likeliest, ", name);
    series.style = text("s", style++);
    series.dots = true;
    chart.series.push_back(std::move(series));
  }
  draw_chart(out, chart);
}

void draw_responses(Markup& out, const SystemRun& run) {
  Chart chart{.label = "Tokens of responses over steps",
              .x_title = "step",
              .y_title = "tokens of a response",
              .unit = ""};
  chart.series = {series_of(run, &StepRecord::response_mean, "mean", "s0"),
                  series_of(run, &StepRecord::response_p99, "99 % have at most", "s1")};
  draw_chart(out, chart);
}

void draw_times(Markup& out, const SystemRun& run) {
  int64_t rollout_ns = 0, reward_ns = 0, update_ns = 0;
  for (const StepRecord& step : run.steps) {
    rollout_ns += step.rollout_ns.value_or(0);
    reward_ns += step.reward_ns.value_or(0);
    update_ns += step.time_ns;
  }
  const auto whole = static_cast<double>(std::max<int64_t>(rollout_ns + reward_ns + update_ns, 1));
  Table table{.head = {"time", "", "share"}, .rows = {}, .letters = "lrr"};
  for (const auto& [name, time_ns] : {std::pair("generating responses", rollout_ns),
                                      std::pair("rewards", reward_ns), std::pair("updates", update_ns)}) {
    table.rows.push_back(
        {name, base::human_duration(time_ns), shown_percent(static_cast<double>(time_ns) / whole)});
  }
  draw_table(out, table);
}

// Shows completions of the newest rollouts.
void draw_completions(Markup& out, const std::vector<Completion>& completions) {
  constexpr size_t kShown = 12;
  if (completions.empty()) return;
  out.leaf("h3", "Sampled completions");
  Table table{.head = {"step", "reward", "tokens", "prompt", "completion"}, .rows = {}, .letters = "rrrll"};
  const size_t first = completions.size() - std::min(kShown, completions.size());
  for (size_t i = first; i < completions.size(); ++i) {
    const Completion& shown = completions[i];
    table.rows.push_back({text(shown.step + 1), shown.reward ? decimal(*shown.reward, 3) : "-",
                          text(shown.tokens, shown.finish_reason == "length" ? ", cut" : ""), shown.prompt,
                          shown.completion});
  }
  draw_table(out, table);
}

}  // namespace

void draw_learning(Markup& out, const RunData& data) {
  const SystemRun& run = data.systems.front();
  const bool rewards =
      std::ranges::any_of(run.steps, [](const StepRecord& step) { return step.reward.has_value(); });
  const bool pairs =
      std::ranges::any_of(run.steps, [](const StepRecord& step) { return step.reward_margin.has_value(); });
  if (!rewards && !pairs) return;
  const auto whole = section(out, "learning", rewards ? "Rewards" : "Preferences");
  out.leaf("p", {{"class", "lead"}},
           rewards ? "What responses to the prompts of each rollout are worth in the mean, and the likeliest "
                     "answers to those that are held out."
                   : "By how much better answers are likelier than worse ones, beside the reference: the "
                     "margin, times rl.beta, and the share of pairs in which it is above 0.");
  if (pairs) {
    Chart chart{
        .label = "Margins over steps", .x_title = "step", .y_title = "margin", .unit = "", .series = {}};
    chart.series = {series_of(run, &StepRecord::reward_margin, "margin", "s0"),
                    series_of(run, &StepRecord::accuracy, "share that is right", "s1")};
    return draw_chart(out, chart);
  }
  draw_rewards(out, data, run);
  draw_responses(out, run);
  draw_times(out, run);
  draw_completions(out, data.completions);
}

}  // namespace sluice::report

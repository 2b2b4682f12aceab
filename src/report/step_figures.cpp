// Figures over steps: times, loss, strategies, the gap to the bound; and the lengths behind them.
#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "corpus/length_chart.h"
#include "report/figures.h"
#include "report/numbers.h"
#include "report/plot.h"
#include "report/run_summary.h"
#include "strategy/readable.h"

namespace sluice::report {

using base::coordinate;
using base::Markup;
using base::text;

namespace {

constexpr size_t kFewSteps = 150;       // up to so many, points are drawn one by one
constexpr size_t kMostStrategies = 12;  // with a row of their own
constexpr int kStyles = 11;             // for lines after the first

double longest_ns(const RunData& data) {
  int64_t longest = 0;
  for (const SystemRun& run : data.systems) {
    for (const StepRecord& step : run.steps) longest = std::max({longest, step.time_ns, step.predicted_ns});
  }
  return static_cast<double>(longest);
}

Series times_of(const SystemRun& run, const std::string& style, const Unit& unit) {
  Series series{.title = run.title, .style = style, .points = {}, .dots = run.steps.size() <= kFewSteps};
  for (const StepRecord& step : run.steps)
    series.points.emplace_back(static_cast<double>(step.step),
                               static_cast<double>(step.time_ns) / unit.scale);
  return series;
}

Series predictions_of(const SystemRun& run, const Unit& unit) {
  Series series{.title = "predicted", .style = "s1", .points = {}};
  for (const StepRecord& step : run.steps) {
    if (step.predicted_ns > 0)
      series.points.emplace_back(static_cast<double>(step.step),
                                 static_cast<double>(step.predicted_ns) / unit.scale);
  }
  return series;
}

// Means over `window` points up to each.
Series smoothed(const Series& raw, size_t window) {
  Series series{.title = text("mean of ", window), .style = "s0", .points = {}};
  double sum = 0;
  for (size_t i = 0; i < raw.points.size(); ++i) {
    sum += raw.points[i].second;
    if (i >= window) sum -= raw.points[i - window].second;
    series.points.emplace_back(raw.points[i].first, sum / static_cast<double>(std::min(i + 1, window)));
  }
  return series;
}

struct StrategyUse {
  std::string strategy;
  std::vector<int64_t> steps;
  int64_t time_ns = 0;
  int64_t tokens = 0;
};

// The most used ones first; of equals the one that came first.
std::vector<StrategyUse> uses_of(const SystemRun& run) {
  std::vector<StrategyUse> uses;
  std::map<std::string, size_t> index;
  for (const StepRecord& step : run.steps) {
    const auto [at, is_new] = index.emplace(step.strategy, uses.size());
    if (is_new) uses.push_back({.strategy = step.strategy, .steps = {}});
    StrategyUse& use = uses[at->second];
    use.steps.push_back(step.step);
    use.time_ns += step.time_ns;
    use.tokens += step.tokens;
  }
  std::ranges::stable_sort(uses, std::ranges::greater{},
                           [](const StrategyUse& use) { return use.steps.size(); });
  return uses;
}

void draw_rug(Markup& out, const StrategyUse& use, const StepRecord& first, const StepRecord& last) {
  const double span = static_cast<double>(last.step - first.step + 1);
  const auto rug = out.element(
      "svg", {{"class", "bar"},
              {"role", "img"},
              {"aria-label", text("taken at ", counted(static_cast<int64_t>(use.steps.size()), "step"))}});
  out.leaf("rect", {{"class", "track"}, {"y", "3"}, {"width", "100%"}, {"height", "22"}});
  for (size_t i = 0; i < use.steps.size();) {
    size_t run = i + 1;  // neighbouring steps are one rectangle
    while (run < use.steps.size() && use.steps[run] == use.steps[run - 1] + 1) ++run;
    const double from = 100 * static_cast<double>(use.steps[i] - first.step) / span;
    out.leaf("rect", {{"class", "fill s0"},
                      {"x", coordinate(from, "%")},
                      {"y", "3"},
                      {"width", coordinate(100 * static_cast<double>(run - i) / span, "%")},
                      {"height", "22"}});
    i = run;
  }
}

struct GapBin {
  int64_t to_ppm;
  const char* title;
};
constexpr std::array<GapBin, 7> kGapBins = {{{0, "proved best"},
                                             {1'000, "up to 0.1 %"},
                                             {3'000, "up to 0.3 %"},
                                             {10'000, "up to 1 %"},
                                             {30'000, "up to 3 %"},
                                             {100'000, "up to 10 %"},
                                             {INT64_MAX, "more"}}};

std::vector<int64_t> sorted_gaps(const SystemRun& run) {
  std::vector<int64_t> gaps;
  for (const StepRecord& step : run.steps) gaps.push_back(step.gap_ppm);
  std::ranges::sort(gaps);
  return gaps;
}

std::string shown_ppm(int64_t ppm) { return shown_percent(static_cast<double>(ppm) / 1e6); }

// Rows of a share of all steps.
void draw_share_row(Markup& out, const std::string& title, int64_t part, int64_t whole) {
  const auto row = out.element("div", {{"class", "row slim"}});
  {
    const auto name = out.element("div", {{"class", "name"}});
    out.text(title);
  }
  const double share = static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  {
    const auto bar = out.element("svg", {{"class", "bar"}, {"aria-hidden", "true"}});
    out.leaf("rect", {{"class", "track"}, {"y", "2"}, {"width", "100%"}, {"height", "14"}});
    out.leaf("rect",
             {{"class", "fill s0"}, {"y", "2"}, {"width", coordinate(100 * share, "%")}, {"height", "14"}});
  }
  const auto value = out.element("div", {{"class", "value"}});
  out.text(text(part));
  out.leaf("small", shown_percent(share));
}

// Figures of a head's evaluations beside the loss, a line for each figure of each set.
void draw_head_figures(Markup& out, const RunData& data) {
  std::map<std::string, Series> lines;
  for (const Evaluation& evaluation : data.evaluations) {
    for (const auto& [key, figure] : evaluation.figures) {
      const std::string name = evaluation.set.empty() ? key : text(key, ", ", evaluation.set);
      lines[name].points.emplace_back(static_cast<double>(evaluation.step), figure);
    }
  }
  if (lines.empty()) return;
  Chart chart{.label = "Figures of held-out text over steps",
              .x_title = "step",
              .y_title = "",
              .unit = "",
              .series = {}};
  for (int style = 1; auto& [name, series] : lines) {
    series.title = name;
    series.style = text("s", style);
    series.dots = true;
    style = style % kStyles + 1;
    chart.series.push_back(std::move(series));
  }
  draw_chart(out, chart);
}

}  // namespace

void draw_step_times(Markup& out, const RunData& data) {
  const bool any = std::ranges::any_of(data.systems, [](const SystemRun& run) { return !run.steps.empty(); });
  if (!any) return;
  const auto whole = section(out, "steps", "Step by step");
  const Unit unit = duration_unit(longest_ns(data));
  Chart chart{.label = "Step time over steps",
              .x_title = "step",
              .y_title = "step time, " + unit.name,
              .unit = unit.name,
              .series = {}};
  for (size_t i = 0; i < data.systems.size(); ++i) {
    const SystemRun& run = data.systems[i];
    if (run.steps.empty()) continue;
    chart.series.push_back(times_of(run, system_style(i), unit));
    if (data.simulated) continue;
    chart.series.back().title = "measured";
    chart.series.push_back(predictions_of(run, unit));
  }
  const double error = prediction_error(data.systems.front()).error;
  out.leaf("p", {{"class", "lead"}},
           error < 0 ? "Every step has other sequences, so every step takes another time."
                     : text("The prediction is made before the step runs; half of them are off by less than ",
                            shown_percent(error), "."));
  draw_chart(out, chart);
}

void draw_loss(Markup& out, const RunData& data) {
  Series raw{.title = "each step", .style = "faint", .points = {}};
  for (const SystemRun& run : data.systems) {
    for (const StepRecord& step : run.steps) {
      if (step.loss) raw.points.emplace_back(static_cast<double>(step.step), *step.loss);
    }
  }
  if (raw.points.empty()) return;
  const auto whole = section(out, "loss", "Loss");
  out.leaf("p", {{"class", "lead"}},
           "Nats a token, before each step's update. It does not depend on the strategies, up to rounding.");
  Chart chart{.label = "Loss over steps",
              .x_title = "step",
              .y_title = "loss, nats a token",
              .unit = "",
              .from_zero = false,
              .series = {}};
  if (raw.points.size() >= 20) chart.series.push_back(smoothed(raw, 10));
  std::map<std::string, Series> held_out;
  for (const Evaluation& evaluation : data.evaluations) {
    Series& series = held_out[evaluation.set];
    series.points.emplace_back(static_cast<double>(evaluation.step), evaluation.validation_loss);
  }
  for (int style = 1; auto& [name, series] : held_out) {
    series.title = name.empty() ? "held-out text" : name;
    series.style = text("s", style);
    series.dots = true;
    style = style % kStyles + 1;
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) raw.style = "s0";
  chart.series.push_back(std::move(raw));
  draw_chart(out, chart);
  draw_head_figures(out, data);
}

void draw_lengths(Markup& out, const RunData& data) {
  if (data.lengths.empty()) return;
  const auto whole = section(out, "lengths", "Sequence lengths");
  out.leaf("p", {{"class", "lead"}},
           text("Half of the ", base::human_count(data.lengths.documents()), " documents have at most ",
                base::human_count(data.lengths.percentile(500'000)), " tokens; the longest has ",
                base::human_count(data.lengths.longest()), ". The bins double."));
  const auto frame = out.element("div", {{"class", "plot"}});
  const auto plot = out.element("svg", {{"role", "img"},
                                        {"aria-label", "Shares of documents and tokens by length"},
                                        {"width", "100%"},
                                        {"height", text(corpus::kLengthsHeight + 40)}});
  corpus::draw_lengths(out, data.lengths);
}

void draw_strategies(Markup& out, const RunData& data) {
  const SystemRun& run = data.systems.front();
  if (run.steps.empty()) return;
  const std::vector<StrategyUse> uses = uses_of(run);
  const auto whole = section(out, "strategies", "Strategies");
  const auto steps = static_cast<int64_t>(run.steps.size());
  out.leaf("p", {{"class", "lead"}},
           uses.size() == 1
               ? text("All ", counted(steps, "step"), " took the same strategy.")
               : text(counted(steps, "step"), " took ", uses.size(),
                      " strategies. A row marks the steps that took one, from the first step to the last."));
  const auto rows = out.element("div", {{"class", "rows strategies"}});
  for (size_t i = 0; i < std::min(uses.size(), kMostStrategies); ++i) {
    const auto row = out.element("div", {{"class", "row"}});
    {
      const auto name = out.element("div", {{"class", "name"}});
      out.leaf("code", strategy::readable_text(uses[i].strategy));
    }
    draw_rug(out, uses[i], run.steps.front(), run.steps.back());
    const auto count = static_cast<int64_t>(uses[i].steps.size());
    const auto value = out.element("div", {{"class", "value"}});
    out.leaf("b", shown_percent(static_cast<double>(count) / static_cast<double>(steps)));
    out.leaf("small", shown_duration(uses[i].time_ns / count));
  }
  if (uses.size() > kMostStrategies)
    out.leaf("p", {{"class", "caption"}}, text("… and ", uses.size() - kMostStrategies, " more."));
}

void draw_gaps(Markup& out, const RunData& data) {
  const SystemRun& run = data.systems.front();
  const std::vector<int64_t> gaps = sorted_gaps(run);
  const bool known = std::ranges::any_of(
      run.steps, [](const StepRecord& step) { return step.gap_ppm > 0 || step.lower_bound_ns > 0; });
  if (gaps.empty() || !known) return;
  const auto whole = section(out, "gap", "How good the plans are");
  out.leaf(
      "p", {{"class", "lead"}},
      text("Every plan comes with a proof of how much faster any other plan of the same candidates could be. "
           "Half of them are within ",
           shown_ppm(gaps[gaps.size() / 2]), ", nine in ten within ", shown_ppm(gaps[gaps.size() * 9 / 10]),
           "."));
  const auto rows = out.element("div", {{"class", "rows"}});
  int64_t from_ppm = -1;
  for (const GapBin& bin : kGapBins) {
    const auto count = std::ranges::count_if(
        gaps, [&](int64_t gap_ppm) { return gap_ppm > from_ppm && gap_ppm <= bin.to_ppm; });
    draw_share_row(out, bin.title, count, static_cast<int64_t>(gaps.size()));
    from_ppm = bin.to_ppm;
  }
}

}  // namespace sluice::report

// The ranks that compute slowly, over steps and ranks.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "base/text.h"
#include "report/figures.h"
#include "report/numbers.h"

namespace sluice::report {
namespace {

using base::coordinate;
using base::Markup;
using base::text;

constexpr size_t kMostBins = 96;   // steps, across
constexpr size_t kMostRanks = 64;  // down: the slowest ones
constexpr double kDarkest = 1.5;   // for this slowdown and more

struct Slowdowns {
  std::vector<std::vector<double>> by_step;  // for the run's newest membership
  std::vector<double> mean;                  // by rank, geometric; 0: not known
  std::vector<int64_t> slow_steps;           // by rank
};

// Covers the steps since the number of ranks changed last.
Slowdowns slowdowns_of(const SystemRun& run) {
  Slowdowns slowdowns;
  for (const StepRecord& step : run.steps) {
    const std::vector<double>& own = step.figures[watch::Figure::kSlowdown];
    if (own.empty()) continue;
    if (own.size() != slowdowns.slow_steps.size()) {
      slowdowns = {};
      slowdowns.slow_steps.assign(own.size(), 0);
    }
    slowdowns.by_step.push_back(own);
    std::set<int> alarmed;
    for (const watch::Alarm& alarm : step.alarms) alarmed.insert(alarm.rank);
    for (const int rank : alarmed) {
      if (static_cast<size_t>(rank) < own.size()) ++slowdowns.slow_steps[static_cast<size_t>(rank)];
    }
  }
  for (size_t rank = 0; rank < slowdowns.slow_steps.size(); ++rank) {
    double sum = 0;
    int64_t known = 0;
    for (const std::vector<double>& of_step : slowdowns.by_step) {
      if (!(of_step[rank] > 0)) continue;
      sum += std::log(of_step[rank]);
      ++known;
    }
    slowdowns.mean.push_back(known > 0 ? std::exp(sum / static_cast<double>(known)) : 0);
  }
  return slowdowns;
}

void draw_row(Markup& out, const Slowdowns& slowdowns, size_t rank) {
  const auto row = out.element("div", {{"class", "row slim"}});
  {
    const auto name = out.element("div", {{"class", "name"}});
    out.text(text("rank ", rank));
  }
  {
    const auto bar = out.element("svg", {{"class", "bar"}, {"aria-hidden", "true"}});
    out.leaf("rect", {{"class", "track"}, {"y", "1"}, {"width", "100%"}, {"height", "16"}});
    const size_t steps = slowdowns.by_step.size(), bins = std::min(steps, kMostBins);
    for (size_t bin = 0; bin < bins; ++bin) {
      const size_t begin = steps * bin / bins, end = steps * (bin + 1) / bins;
      double sum = 0;
      for (size_t step = begin; step < end; ++step) sum += slowdowns.by_step[step][rank];
      const double dark = (sum / static_cast<double>(end - begin) - 1) / (kDarkest - 1);
      if (!(dark >= 0.05)) continue;  // nor unknown slowdowns
      out.leaf("rect", {{"class", "fill s1"},
                        {"x", coordinate(100 * static_cast<double>(bin) / static_cast<double>(bins), "%")},
                        {"y", "1"},
                        {"width", coordinate(100.0 / static_cast<double>(bins), "%")},
                        {"height", "16"},
                        {"fill-opacity", coordinate(std::min(1.0, dark))}});
    }
  }
  const auto value = out.element("div", {{"class", "value"}});
  out.text(decimal(slowdowns.mean[rank], 2));
  out.leaf("small", slowdowns.slow_steps[rank] > 0 ? text(slowdowns.slow_steps[rank], " slow") : "");
}

// The newest critical path that was computed, by rank and kind.
void draw_path(Markup& out, const SystemRun& run) {
  const auto looked_at =
      std::ranges::find_if(run.steps.rbegin(), run.steps.rend(),
                           [](const StepRecord& step) { return !step.critical_path.empty(); });
  if (looked_at == run.steps.rend()) return;
  constexpr size_t kMostShares = 12;
  Table table{.head = {"rank", "on", "ms", "planned", "beyond"}, .rows = {}, .letters = "rlrrr"};
  const auto ms = [](int64_t ns) { return decimal(milliseconds(ns), 1); };
  for (const PathShare& share : looked_at->critical_path) {
    if (table.rows.size() == kMostShares) break;
    table.rows.push_back({text(share.rank), share.kind, ms(share.time_ns), ms(share.planned_ns),
                          ms(share.time_ns - share.planned_ns)});
  }
  out.leaf("p", {{"class", "caption"}},
           text("Who made whom wait in step ", looked_at->step,
                ": its critical path, by rank and by what that did; everything else waited for it."));
  draw_table(out, table);
}

}  // namespace

void draw_slowdowns(Markup& out, const RunData& data) {
  const Slowdowns slowdowns = slowdowns_of(data.systems.front());
  if (slowdowns.by_step.empty()) return;
  std::vector<size_t> ranks(slowdowns.mean.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  const auto slowest = [&](size_t rank) { return slowdowns.slow_steps[rank]; };
  const size_t worst = *std::ranges::max_element(ranks, {}, slowest);
  const auto whole = section(out, "paces", "Pace of the ranks");
  out.leaf(
      "p", {{"class", "lead"}},
      text(slowest(worst) > 0 ? text("Rank ", worst, " was slow for ", slowest(worst), " of ",
                                     counted(static_cast<int64_t>(slowdowns.by_step.size()), "step"), ". ")
                              : text("No rank stayed slow. "),
           "A rank's slowdown is what it computed over what was planned for it, beside the other ranks: "
           "1 is like "
           "the others, whatever they compute. The darker a step, the slower; dark is ",
           decimal(kDarkest, 2), "."));
  if (ranks.size() > kMostRanks) {
    std::ranges::stable_sort(ranks, std::greater{}, [&](size_t rank) { return slowdowns.mean[rank]; });
    ranks.resize(kMostRanks);
  }
  const auto rows = out.element("div", {{"class", "rows"}});
  for (const size_t rank : ranks) draw_row(out, slowdowns, rank);
  if (slowdowns.mean.size() > kMostRanks)
    out.leaf("p", {{"class", "caption"}},
             text("The ", kMostRanks, " slowest of ", slowdowns.mean.size(), " ranks."));
  draw_path(out, data.systems.front());
}

}  // namespace sluice::report

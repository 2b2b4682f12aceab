// What each model of a step took, in a run with several.
#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "report/figures.h"
#include "report/numbers.h"

namespace sluice::report {

using base::Markup;
using base::text;

namespace {

// An act over all steps that have it.
struct ActSum {
  std::string name;
  int64_t steps = 0;
  ActRecord sum;  // times of all steps, memory of the fullest
};

std::vector<ActSum> sums_of(const SystemRun& run) {
  std::vector<ActSum> sums;
  for (const StepRecord& step : run.steps) {
    for (const ActRecord& act : step.acts) {
      auto found = std::ranges::find(sums, act.name, &ActSum::name);
      if (found == sums.end()) found = sums.insert(sums.end(), ActSum{.name = act.name, .sum = {}});
      ++found->steps;
      add(act, found->sum);
    }
  }
  return sums;
}

std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : base::human_bytes(static_cast<double>(bytes));
}

}  // namespace

void draw_acts(Markup& out, const RunData& data) {
  const std::vector<ActSum> sums = sums_of(data.systems.front());
  if (sums.empty()) return;
  const auto whole = section(out, "acts", "Acts");
  out.leaf("p", {{"class", "lead"}},
           "What each model of the run took, on its first rank. Acts of a step run one behind the other; rewards and "
           "values come once a rollout, between two steps.");
  Table table{.head = {"act", "times", "mean time", "predicted", "peak memory", "predicted"},
              .rows = {},
              .letters = "lrrrrr"};
  for (const ActSum& act : sums) {
    table.rows.push_back({act.name, text(act.steps), base::human_duration(act.sum.time_ns / act.steps),
                          act.sum.predicted_ns == 0 ? "-" : base::human_duration(act.sum.predicted_ns / act.steps),
                          bytes_text(act.sum.peak_bytes), bytes_text(act.sum.predicted_peak_bytes)});
  }
  draw_table(out, table);
}

}  // namespace sluice::report

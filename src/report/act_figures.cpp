// The time and memory of each model of a step, in a run with several models.
#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "report/figures.h"
#include "report/numbers.h"
#include "report/run_summary.h"

namespace sluice::report {

using base::Markup;
using base::text;

namespace {

std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : base::human_bytes(static_cast<double>(bytes));
}

}  // namespace

void draw_acts(Markup& out, const RunData& data) {
  const std::vector<ActSum> sums = act_sums(data.systems.front());
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

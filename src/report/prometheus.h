// A run's newest step in Prometheus' text format, for node_exporter's textfile collector or any scraper of
// files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/step_record.h"

namespace sluice::report {

// What a scrape sees beside the step itself.
struct PrometheusTotals {
  int64_t tokens = 0;  // trained on since this process began; Prometheus knows counters that begin anew
  std::vector<int> slow_ranks;
};

// Gauges sluice_KEY of every metric that is a number, times as sluice_…_seconds; sluice_step_seconds for the
// step's own; sluice_rank_pace{rank} and sluice_rank_wait_seconds{rank}; counters sluice_steps_total and
// sluice_tokens_total; sluice_alarm{rank,metric} 1 for each rank that is slow. What is not known is left out.
// Ends with a newline.
std::string prometheus_text(const StepRecord& step, const PrometheusTotals& totals);

}  // namespace sluice::report

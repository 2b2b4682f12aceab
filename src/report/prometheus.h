// A run's newest step in Prometheus' text format, for node_exporter's textfile collector or any scraper of
// files.
#pragma once

#include <cstdint>
#include <string>

#include "report/step_record.h"

namespace sluice::report {

// Gauges sluice_KEY of every metric that is a number, times as sluice_…_seconds; sluice_step_seconds for the
// step's own; sluice_rank_KEY{rank} of every figure of ranks (watch/figures.h), sluice_rank_slowdown{rank}
// among them; counters sluice_steps_total and sluice_tokens_total; sluice_alarm{rank,metric} 1 for each alarm
// that is on. Unknown values are left out. Ends with a newline. `tokens`: trained on since this process
// began; Prometheus knows counters that begin anew.
std::string prometheus_text(const StepRecord& step, int64_t tokens);

}  // namespace sluice::report

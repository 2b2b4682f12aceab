// A run's newest step in Prometheus' text format, for node_exporter's textfile collector or any scraper of
// files.
#pragma once

#include <cstdint>
#include <string>

#include "report/step_record.h"

namespace sluice::report {

// Gauges: sluice_KEY for every metric that is a number, with times as sluice_…_seconds. The step's own time
// is sluice_step_seconds. Figures of ranks (watch/figures.h) are sluice_rank_KEY{rank}, such as
// sluice_rank_slowdown{rank}. An alarm that is on sets sluice_alarm{rank,metric} to 1. Counters:
// sluice_steps_total and sluice_tokens_total. Unknown values are left out. Ends with a newline. `tokens`:
// trained on since this process began; Prometheus handles counters that begin anew.
std::string prometheus_text(const StepRecord& step, int64_t tokens);

}  // namespace sluice::report

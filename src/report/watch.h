// A run in progress, from the files of its directory: slow ranks, and what each rank waits for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "report/step_record.h"

namespace sluice::report {

struct WatchedRank {
  double slowdown = 0;               // over the last steps (watch/detector.h); 0: not known
  double wait_ms = 0;                // in the last step
  std::string waits_for;             // cause of most of it: "pull", "lane"; empty: it did not wait
  std::vector<watch::Alarm> alarms;  // alarms that are on
  int64_t alarmed_steps = 0;         // steps looked at in which one was on
};

struct WatchedRun {
  std::optional<StepRecord> last;  // none yet
  int64_t steps = 0;               // steps looked at
  std::vector<WatchedRank> ranks;  // none without known slowdowns: one rank alone, or an older program's run
  watch::Figures figures;          // the newest that a step has
  std::optional<StepRecord> critical_path;  // the newest step with a critical path
};

// Looks at the last `most_steps` of `run`/metrics.jsonl; a line that is being written is left out. InputError
// if there is no such file, or if a line is not valid.
WatchedRun watch_run(const std::filesystem::path& run, int64_t most_steps = 1000);

// {"step": …, "ranks": [{"rank", "slowdown", "waits_ms", "alarms"}]}; unknown values are null.
base::Json to_json(const WatchedRun& run);
// The same for people: a line about the step, and a table of ranks.
std::string to_text(const WatchedRun& run);

}  // namespace sluice::report

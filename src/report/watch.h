// A run as it goes on, from the files of its directory: which ranks are slow, and what each waits for.
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
  std::string waits_for;             // what most of that is: "pull", "lane"; empty: it did not wait
  std::vector<watch::Alarm> alarms;  // that are on
  int64_t alarmed_steps = 0;         // of those looked at, in which one was on
};

struct WatchedRun {
  std::optional<StepRecord> last;  // none yet
  int64_t steps = 0;               // that were looked at
  std::vector<WatchedRank> ranks;  // none where the run has no paces: one rank alone, or an older program's
  watch::Figures figures;          // of the newest step that has some
  std::optional<StepRecord> critical_path;  // the newest step whose critical path was looked at
};

// Looks at the last `most_steps` of `run`/metrics.jsonl; a line that is being written is left out. InputError
// when there is no such file, or a line is none.
WatchedRun watch_run(const std::filesystem::path& run, int64_t most_steps = 1000);

// {"step": …, "ranks": [{"rank", "slowdown", "waits_ms", "alarms"}]}; unknown values are null.
base::Json to_json(const WatchedRun& run);
// The same for people: a line about the step, and a table of ranks.
std::string to_text(const WatchedRun& run);

}  // namespace sluice::report

// From a run's directory, a real one or a simulated one, to what its report is made from.
#pragma once

#include <filesystem>

#include "report/run_data.h"

namespace sluice::report {

// Reads what docs/formats.md says of run directories. metrics.jsonl must be there, with at least one step; a
// last line that is cut off (the run goes on) is left out, and so are files that aren't there yet. InputError
// naming file, line and value where something is damaged.
//
// With simulation.json the run is a simulated one: its `systems` name the runs, lines of metrics.jsonl carry
// `system`, and trace-STEP-SYSTEM.json is another system's timeline. Else it is a training run, whose
// trace-STEP-predicted.json stands beside the measured trace-STEP.json.
RunData read_run(const std::filesystem::path& directory);

// report_page(read_run(directory)) as a file. RunError when it cannot be written.
void write_report(const std::filesystem::path& directory, const std::filesystem::path& out);

}  // namespace sluice::report

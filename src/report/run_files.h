// Reads a run's directory, of a real run or a simulated one, into the data of its report.
#pragma once

#include <filesystem>

#include "report/run_data.h"

namespace sluice::report {

// Reads a run directory as docs/formats.md describes it. metrics.jsonl must be there, with at least one step.
// A last line that is cut off (the run goes on) is left out, and so are files that aren't there yet.
// InputError naming file, line and value if something is damaged.
//
// If simulation.json is there, the run is a simulated one: its `systems` name the runs, lines of
// metrics.jsonl carry `system`, and trace-STEP-SYSTEM.json is another system's timeline. Otherwise it is a
// training run, whose trace-STEP-predicted.json stands beside the measured trace-STEP.json.
RunData read_run(const std::filesystem::path& directory);

// report_page(read_run(directory)) as a file. RunError when it cannot be written.
void write_report(const std::filesystem::path& directory, const std::filesystem::path& out);

}  // namespace sluice::report

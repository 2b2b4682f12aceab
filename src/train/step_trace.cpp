#include "train/step_trace.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "graph/trace.h"

namespace sluice::train {

namespace {

// Start and end of every node of this rank's program, padded to the longest program.
std::vector<int64_t> measured_words(const graph::StepGraph& graph, const runtime::StepTiming& timing) {
  size_t longest = 0;
  for (const std::vector<int>& program : graph.programs) longest = std::max(longest, program.size());
  std::vector<int64_t> words;
  for (const runtime::Measurement& measurement : timing.nodes) {
    words.push_back(measurement.start_ns);
    words.push_back(measurement.end_ns);
  }
  words.resize(2 * longest, 0);
  return words;
}

}  // namespace

void write_step_trace(Control& control, const graph::StepGraph& graph, const runtime::StepTiming& timing,
                      const std::filesystem::path& directory) {
  const auto words = control.gather(measured_words(graph, timing));
  control.together("writing the trace", [&] {
    if (control.rank() != 0) return;
    std::vector<graph::TraceRecord> measured;
    for (size_t rank = 0; rank < graph.programs.size(); ++rank) {
      for (size_t i = 0; i < graph.programs[rank].size(); ++i) {
        const graph::Node& node = graph.node(graph.programs[rank][i]);
        measured.push_back(graph::trace_record(graph, node, static_cast<int>(rank), words[rank][2 * i],
                                               words[rank][2 * i + 1]));
      }
    }
    base::write_file_atomically(directory / base::text("trace-", graph.step, ".json"),
                                graph::chrome_trace(measured));
    base::write_file_atomically(directory / base::text("trace-", graph.step, "-predicted.json"),
                                graph::chrome_trace(graph::trace_records(graph)));
  });
}

}  // namespace sluice::train

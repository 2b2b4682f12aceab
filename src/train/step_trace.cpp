#include "train/step_trace.h"

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "base/text.h"
#include "graph/trace.h"

namespace sluice::train {

namespace {

constexpr size_t kWords = 3;

// Start, end and memory of every node of this rank's program, padded to the longest program.
std::vector<int64_t> measured_words(const graph::StepGraph& graph, const runtime::StepTiming& timing) {
  size_t longest = 0;
  for (const std::vector<int>& program : graph.programs) longest = std::max(longest, program.size());
  std::vector<int64_t> words;
  for (const runtime::Measurement& measurement : timing.nodes) {
    words.push_back(measurement.start_ns);
    words.push_back(measurement.end_ns);
    words.push_back(measurement.held_bytes);
  }
  words.resize(kWords * longest, 0);
  return words;
}

std::string measured_trace(const graph::StepGraph& graph, const std::vector<std::vector<int64_t>>& words) {
  std::vector<graph::TraceRecord> records;
  std::vector<graph::TraceCounter> counters;
  for (size_t r = 0; r < graph.programs.size(); ++r) {
    const auto rank = static_cast<int>(r);
    for (size_t i = 0; i < graph.programs[r].size(); ++i) {
      const int64_t* word = &words[r][kWords * i];
      records.push_back(graph::trace_record(graph, graph.node(graph.programs[r][i]), rank, word[0], word[1]));
      if (word[2] > 0) counters.push_back({"memory", rank, word[1], word[2]});
    }
  }
  std::ranges::stable_sort(counters, {}, [](const graph::TraceCounter& counter) {
    return std::pair(counter.rank, counter.time_ns);
  });
  return graph::chrome_trace(records, counters);
}

std::string predicted_trace(const graph::StepGraph& graph, const cost::CostModel& cost) {
  std::vector<int> ranks(graph.programs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return graph::chrome_trace(graph::trace_records(graph), graph::memory_counters(graph, cost, ranks));
}

}  // namespace

void write_step_trace(Control& control, const graph::StepGraph& graph, const cost::CostModel& cost,
                      const runtime::StepTiming& timing, const std::filesystem::path& directory) {
  const auto words = control.gather(measured_words(graph, timing));
  control.together("writing the trace", [&] {
    if (control.rank() != 0) return;
    base::write_file_atomically(directory / base::text("trace-", graph.step, ".json"),
                                measured_trace(graph, words));
    base::write_file_atomically(directory / base::text("trace-", graph.step, "-predicted.json"),
                                predicted_trace(graph, cost));
  });
}

}  // namespace sluice::train

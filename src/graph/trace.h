// Timelines as Chrome/Perfetto JSON: ranks are processes, streams are threads. Predicted and measured
// timelines are written from the same records, so one viewer compares them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cost/cost_model.h"
#include "graph/step_graph.h"

namespace sluice::graph {

// A rank's activity on a stream.
struct TraceRecord {
  std::string label;
  std::string category;
  int rank = 0;
  Stream stream = Stream::kCompute;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // Records of one transfer share a number >= 0: an arrow runs from each sender to its receiver.
  int64_t flow = -1;
  enum class End : uint8_t { kNone, kSender, kReceiver } end = End::kNone;
  // Every record has seq and predicted_ns, and bytes and tokens if not 0. Compute cells
  // have pipeline; cp_exchange_ns and fsdp_ns (graph::Cell) if not 0; head_lanes, the lanes
  // of a head group, if several; and pull_seq, the last pull that the cell waits for.
  std::vector<std::pair<std::string, int64_t>> arguments;
};

// A value over time, drawn as an area above the rank's streams.
struct TraceCounter {
  std::string name;
  int rank = 0;
  int64_t time_ns = 0;
  int64_t value = 0;
};

// The predicted memory of the ranks as counters "memory" (graph/memory.h). REQUIRES: the clock has run.
std::vector<TraceCounter> memory_counters(const StepGraph& graph, const cost::CostModel& cost,
                                          const std::vector<int>& ranks);

// The predicted timeline: one record for every node and member. REQUIRES: the clock has run.
std::vector<TraceRecord> trace_records(const StepGraph& graph);
// The same of some ranks, ascending.
std::vector<TraceRecord> trace_records(const StepGraph& graph, const std::vector<int>& ranks);

// The ranks that a trace of at most about `most_bytes` can show: all ranks,
// or those of evenly spread whole nodes, at least one node. Ascending.
std::vector<int> traced_ranks(const StepGraph& graph, int64_t most_bytes);
// One rank's record of a node with measured times.
TraceRecord trace_record(const StepGraph& graph, const Node& node, int rank, int64_t start_ns,
                         int64_t end_ns);

// The file's bytes. Times are microseconds with nanosecond digits. `note`, for
// example "16 of 1024 ranks", goes to otherData, which viewers show as metadata.
std::string chrome_trace(const std::vector<TraceRecord>& records,
                         const std::vector<TraceCounter>& counters = {}, const std::string& note = "");

struct Trace {
  std::vector<TraceRecord> records;
  std::vector<TraceCounter> counters;
};
inline constexpr int kMostTraceRanks = 1 << 20;
// Reads such a file, one event per line. Skips events of kinds that
// chrome_trace does not write. InputError with `name`, the line and the fault.
Trace parse_chrome_trace(const std::string& bytes, const std::string& name);

}  // namespace sluice::graph

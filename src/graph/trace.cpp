#include "graph/trace.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "base/json_fields.h"
#include "graph/memory.h"

namespace sluice::graph {

namespace {

std::string quoted(const std::string& value) { return base::json_text(value); }

// Writes one event per line, with commas between. Avoids streams, because traces have millions of fields.
class EventList {
 public:
  void begin(char phase, int rank, int thread) {
    text_ += empty_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    text_ += phase;
    text_ += '"';
    empty_ = false;
    field("pid", rank);
    field("tid", thread);
  }
  void field(const char* name, int64_t value) { raw(name, std::to_string(value)); }
  void field(const char* name, const std::string& value) { raw(name, quoted(value)); }
  // Writes nanoseconds as the format's microseconds, exactly.
  void time(const char* name, int64_t ns) {
    const std::string rest = std::to_string(ns % 1000);
    raw(name, std::to_string(ns / 1000) + "." + std::string(3 - rest.size(), '0') + rest);
  }
  void raw(const char* name, const std::string& value) {
    text_ += ",\"";
    text_ += name;
    text_ += "\":";
    text_ += value;
  }
  void end() { text_ += '}'; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool empty_ = true;
};

// Not 0: Perfetto takes thread 0 for the process's main thread, whose number is the process's.
int thread_of(Stream stream) { return static_cast<int>(stream) + 1; }

void write_names(EventList& events, const std::vector<TraceRecord>& records) {
  std::set<int> ranks;
  std::set<std::pair<int, Stream>> streams;
  for (const TraceRecord& record : records) {
    ranks.insert(record.rank);
    streams.emplace(record.rank, record.stream);
  }
  const auto name = [&](const char* kind, int rank, int thread, const std::string& arguments) {
    events.begin('M', rank, thread);
    events.field("name", kind);
    events.raw("args", "{" + arguments + "}");
    events.end();
  };
  for (const int rank : ranks) {
    name("process_name", rank, 0, "\"name\":\"rank " + std::to_string(rank) + "\"");
    name("process_sort_index", rank, 0, "\"sort_index\":" + std::to_string(rank));
  }
  for (const auto& [rank, stream] : streams) {
    const int thread = thread_of(stream);
    name("thread_name", rank, thread, "\"name\":" + quoted(name_of(stream)));
    name("thread_sort_index", rank, thread, "\"sort_index\":" + std::to_string(thread));
  }
}

void write_record(EventList& events, const TraceRecord& record) {
  const int thread = thread_of(record.stream);
  events.begin('X', record.rank, thread);
  events.field("name", record.label);
  events.field("cat", record.category);
  events.time("ts", record.start_ns);
  events.time("dur", record.end_ns - record.start_ns);
  std::string arguments;
  for (const auto& [name, value] : record.arguments) {
    arguments += (arguments.empty() ? "" : ",") + quoted(name) + ":" + std::to_string(value);
  }
  events.raw("args", "{" + arguments + "}");
  events.end();
  if (record.end == TraceRecord::End::kNone) return;
  const bool sender = record.end == TraceRecord::End::kSender;
  events.begin(sender ? 's' : 'f', record.rank, thread);
  events.field("name", "transfer");
  events.field("cat", record.category);
  events.field("id", record.flow);
  // The arrow binds to the slice that encloses its time: it
  // runs from one slice's start to just before the other's end.
  events.time("ts", sender ? record.start_ns : std::max(record.start_ns, record.end_ns - 1));
  if (!sender) events.field("bp", "e");
  events.end();
}

void write_counter(EventList& events, const TraceCounter& counter) {
  events.begin('C', counter.rank, 0);
  events.field("name", counter.name);
  events.time("ts", counter.time_ns);
  events.raw("args", "{" + quoted(counter.name) + ":" + std::to_string(counter.value) + "}");
  events.end();
}

// The last round of parameters that a cell waits for; -1: none.
int64_t pull_seq(const StepGraph& graph, const Node& node) {
  int64_t last = -1;
  for (const int id : node.dependencies) {
    const Node& on = graph.node(id);
    if (is_pull(on.kind)) last = std::max(last, on.seq);
  }
  return last;
}

// Adds the causes of the cell's time, beyond the times themselves (report/time_shares).
void add_causes(const StepGraph& graph, const Node& node, TraceRecord& record) {
  const Cell& cell = node.cell();
  record.arguments.emplace_back("pipeline", cell.pipeline);
  if (cell.cp_exchange_ns > 0) record.arguments.emplace_back("cp_exchange_ns", cell.cp_exchange_ns);
  if (cell.fsdp_ns > 0) record.arguments.emplace_back("fsdp_ns", cell.fsdp_ns);
  const auto pipeline = static_cast<size_t>(cell.pipeline);
  const int head_lanes =
      head_lanes_of(graph.plan.pipelines[pipeline], graph.passes[pipeline][static_cast<size_t>(cell.pass)]);
  if (head_lanes > 1) record.arguments.emplace_back("head_lanes", head_lanes);
  const int64_t pulled = pull_seq(graph, node);
  if (pulled >= 0) record.arguments.emplace_back("pull_seq", pulled);
}

// Sets the rank's end of a transfer, and the number of its pair of ranks.
void mark_transfer(const StepGraph& graph, const Node& node, TraceRecord& record) {
  const Transfer& of = node.transfer();
  const strategy::Pipeline& pipeline = graph.plan.pipelines[static_cast<size_t>(of.pipeline)].pipeline;
  for (int lane = of.lane; lane < of.lane + of.lanes; ++lane) {
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      const bool below = pipeline.rank_of(of.stage, lane, t) == record.rank;
      const bool above = pipeline.rank_of(of.stage + 1, lane, t) == record.rank;
      if (!below && !above) continue;
      const bool sends = (node.kind == NodeKind::kSendActivation) == below;
      record.end = sends ? TraceRecord::End::kSender : TraceRecord::End::kReceiver;
      record.flow = (static_cast<int64_t>(node.id) << 20) + (lane - of.lane) * pipeline.scheme.tp + t;
    }
  }
}

// A record without rank and times.
TraceRecord record_of(const StepGraph& graph, const Node& node) {
  TraceRecord record;
  record.label = label(node);
  record.category = name_of(node.kind);
  record.stream = stream_of(node.kind);
  record.arguments.reserve(6);
  record.arguments = {{"seq", node.seq}, {"predicted_ns", node.duration_ns}};
  if (node.bytes > 0) record.arguments.emplace_back("bytes", node.bytes);
  if (node.at() != nullptr) record.arguments.emplace_back("tokens", node.at()->tokens);
  if (is_compute_cell(node.kind)) add_causes(graph, node, record);
  return record;
}

void place(const StepGraph& graph, const Node& node, int rank, TraceRecord& record) {
  record.rank = rank;
  if (is_transfer(node.kind)) mark_transfer(graph, node, record);
}

// The approximate bytes of a node per rank in a file, with its arrow and the memory counters around it.
int64_t trace_bytes(const Node& node) {
  if (is_compute_cell(node.kind)) return 430 + (node.cell().fsdp_ns > 0 ? 400 * node.cell().run.size() : 0);
  return is_transfer(node.kind) ? 330 : 190;
}

}  // namespace

TraceRecord trace_record(const StepGraph& graph, const Node& node, int rank, int64_t start_ns,
                         int64_t end_ns) {
  TraceRecord record = record_of(graph, node);
  place(graph, node, rank, record);
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  return record;
}

std::vector<TraceCounter> memory_counters(const StepGraph& graph, const cost::CostModel& cost,
                                          const std::vector<int>& ranks) {
  const auto uses = memory_over_time(graph, cost, ranks);
  std::vector<TraceCounter> counters;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const MemoryUse& use : uses[i]) counters.push_back({"memory", ranks[i], use.time_ns, use.bytes});
  }
  return counters;
}

std::vector<TraceRecord> trace_records(const StepGraph& graph) {
  std::vector<int> all(static_cast<size_t>(graph.world_size));
  std::iota(all.begin(), all.end(), 0);
  return trace_records(graph, all);
}

std::vector<TraceRecord> trace_records(const StepGraph& graph, const std::vector<int>& ranks) {
  std::vector<char> traced(static_cast<size_t>(graph.world_size), 0);
  size_t count = 0;
  for (const int rank : ranks) {
    traced[static_cast<size_t>(rank)] = 1;
    count += graph.programs[static_cast<size_t>(rank)].size();
  }
  std::vector<TraceRecord> records;
  records.reserve(count);
  for (const int id : graph.in_order()) {
    const Node& node = graph.node(id);
    TraceRecord record;
    bool made = false;
    for (const int rank : node.members) {
      if (!traced[static_cast<size_t>(rank)]) continue;
      if (!made) record = record_of(graph, node);
      made = true;
      record.start_ns = node.start_ns;
      record.end_ns = node.end_ns;
      place(graph, node, rank, record);
      records.push_back(record);
    }
  }
  return records;
}

std::vector<int> traced_ranks(const StepGraph& graph, int64_t most_bytes) {
  const strategy::Topology& topology = graph.links->topology;
  const int nodes = topology.nodes_of(graph.world_size);
  std::vector<int64_t> bytes(static_cast<size_t>(nodes), 0);
  for (int rank = 0; rank < graph.world_size; ++rank) {
    int64_t& of_node = bytes[static_cast<size_t>(topology.node_of(rank))];
    for (const int id : graph.programs[static_cast<size_t>(rank)]) of_node += trace_bytes(graph.node(id));
  }
  const int64_t most = std::max<int64_t>(1, std::ranges::max(bytes));
  const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  const int64_t fit =
      all <= most_bytes ? nodes : std::max<int64_t>(1, std::min<int64_t>(nodes, most_bytes / most));
  std::vector<int> ranks;
  for (int64_t i = 0; i < fit; ++i) {
    const int first = static_cast<int>(i * nodes / fit) * topology.node_ranks();
    const int end = std::min(first + topology.node_ranks(), graph.world_size);
    for (int rank = first; rank < end; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

std::string chrome_trace(const std::vector<TraceRecord>& records, const std::vector<TraceCounter>& counters,
                         const std::string& note) {
  EventList events;
  write_names(events, records);
  for (const TraceRecord& record : records) write_record(events, record);
  for (const TraceCounter& counter : counters) write_counter(events, counter);
  const std::string about = note.empty() ? "" : "\"otherData\":{\"note\":" + quoted(note) + "},";
  return "{\"displayTimeUnit\":\"ns\"," + about + "\"traceEvents\":[" + events.text() + "\n]}\n";
}

}  // namespace sluice::graph

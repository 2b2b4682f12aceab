#include "graph/trace.h"

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/json.h"

namespace sluice::graph {

namespace {

// Nanoseconds as the microseconds that the format wants, exactly.
std::string microseconds(int64_t ns) {
  std::ostringstream out;
  out << ns / 1000 << "." << std::setw(3) << std::setfill('0') << ns % 1000;
  return out.str();
}

std::string quoted(const std::string& value) { return base::Json(value).dump(); }

// Writes one event a line, with commas between.
class EventList {
 public:
  void begin(const char* phase, int rank, int thread) {
    out_ << (empty_ ? "\n" : ",\n") << R"({"ph":")" << phase << R"(","pid":)" << rank << R"(,"tid":)"
         << thread;
    empty_ = false;
  }
  template <typename Value>
  EventList& field(const char* name, const Value& value) {
    out_ << ",\"" << name << "\":" << value;
    return *this;
  }
  void end() { out_ << "}"; }
  std::string text() const { return out_.str(); }

 private:
  std::ostringstream out_;
  bool empty_ = true;
};

void write_names(EventList& events, const std::vector<TraceRecord>& records) {
  std::set<int> ranks;
  std::set<std::pair<int, Stream>> streams;
  for (const TraceRecord& record : records) {
    ranks.insert(record.rank);
    streams.emplace(record.rank, record.stream);
  }
  const auto name = [&](const char* kind, int rank, int thread, const std::string& value) {
    events.begin("M", rank, thread);
    events.field("name", quoted(kind)).field("args", base::text("{\"name\":", quoted(value), "}"));
    events.end();
  };
  for (const int rank : ranks) name("process_name", rank, 0, base::text("rank ", rank));
  for (const auto& [rank, stream] : streams) {
    name("thread_name", rank, static_cast<int>(stream), name_of(stream));
  }
}

void write_record(EventList& events, const TraceRecord& record) {
  const int thread = static_cast<int>(record.stream);
  events.begin("X", record.rank, thread);
  events.field("name", quoted(record.label)).field("cat", quoted(record.category));
  events.field("ts", microseconds(record.start_ns));
  events.field("dur", microseconds(record.end_ns - record.start_ns));
  std::string arguments;
  for (const auto& [name, value] : record.arguments) {
    arguments += base::text(arguments.empty() ? "" : ",", quoted(name), ":", value);
  }
  events.field("args", base::text("{", arguments, "}"));
  events.end();
  if (record.end == TraceRecord::End::kNone) return;
  const bool sender = record.end == TraceRecord::End::kSender;
  events.begin(sender ? "s" : "f", record.rank, thread);
  events.field("name", quoted("transfer")).field("cat", quoted(record.category)).field("id", record.flow);
  // The arrow binds to the slice that encloses its time: the start of one, the end of the other.
  events.field("ts", microseconds(sender ? record.start_ns : record.end_ns));
  if (!sender) events.field("bp", quoted("e"));
  events.end();
}

void write_counter(EventList& events, const TraceCounter& counter) {
  events.begin("C", counter.rank, 0);
  events.field("name", quoted(counter.name)).field("ts", microseconds(counter.time_ns));
  events.field("args", base::text("{", quoted(counter.name), ":", counter.value, "}"));
  events.end();
}

bool is_transfer(NodeKind kind) {
  return kind == NodeKind::kSendActivation || kind == NodeKind::kSendGradient;
}

// The last round of parameters that a cell waits for; -1: none.
int64_t pull_seq(const StepGraph& graph, const Node& node) {
  int64_t last = -1;
  for (const int id : node.dependencies) {
    const Node& on = graph.node(id);
    if (on.kind == NodeKind::kPullInter || on.kind == NodeKind::kPullIntra) last = std::max(last, on.seq);
  }
  return last;
}

// What tells, behind the times alone, where the time goes (report/time_shares).
void add_causes(const StepGraph& graph, const Node& node, TraceRecord& record) {
  record.arguments.emplace_back("pipeline", node.pipeline);
  if (node.ring_ns > 0) record.arguments.emplace_back("ring_ns", node.ring_ns);
  const int64_t pulled = pull_seq(graph, node);
  if (pulled >= 0) record.arguments.emplace_back("pull_seq", pulled);
}

// Which end of a transfer a rank is, and the number of the pair it belongs to.
void mark_transfer(const StepGraph& graph, const Node& node, TraceRecord& record) {
  const strategy::Pipeline& pipeline = graph.plan.pipelines[static_cast<size_t>(node.pipeline)].pipeline;
  for (int lane = node.lane; lane < node.lane + node.lanes; ++lane) {
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      const bool below = pipeline.rank_of(node.stage, lane, t) == record.rank;
      const bool above = pipeline.rank_of(node.stage + 1, lane, t) == record.rank;
      if (!below && !above) continue;
      const bool sends = (node.kind == NodeKind::kSendActivation) == below;
      record.end = sends ? TraceRecord::End::kSender : TraceRecord::End::kReceiver;
      record.flow = (static_cast<int64_t>(node.id) << 20) + (lane - node.lane) * pipeline.scheme.tp + t;
    }
  }
}

}  // namespace

TraceRecord trace_record(const StepGraph& graph, const Node& node, int rank, int64_t start_ns,
                         int64_t end_ns) {
  TraceRecord record;
  record.label = label(node);
  record.category = name_of(node.kind);
  record.rank = rank;
  record.stream = stream_of(node.kind);
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  record.arguments = {{"seq", node.seq}, {"predicted_ns", node.duration_ns}};
  if (node.bytes > 0) record.arguments.emplace_back("bytes", node.bytes);
  if (node.tokens > 0) record.arguments.emplace_back("tokens", node.tokens);
  if (is_compute_cell(node.kind)) add_causes(graph, node, record);
  if (is_transfer(node.kind)) mark_transfer(graph, node, record);
  return record;
}

std::vector<TraceRecord> trace_records(const StepGraph& graph) {
  std::vector<TraceRecord> records;
  for (const int id : graph.in_order()) {
    const Node& node = graph.node(id);
    for (const int rank : node.members) {
      records.push_back(trace_record(graph, node, rank, node.start_ns, node.end_ns));
    }
  }
  return records;
}

std::string chrome_trace(const std::vector<TraceRecord>& records, const std::vector<TraceCounter>& counters) {
  EventList events;
  write_names(events, records);
  for (const TraceRecord& record : records) write_record(events, record);
  for (const TraceCounter& counter : counters) write_counter(events, counter);
  return base::text("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", events.text(), "\n]}\n");
}

}  // namespace sluice::graph

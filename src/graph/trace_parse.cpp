// The reader of timelines. Parses one line at a time: a file may be much larger than the records kept.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "base/renames.h"
#include "graph/trace.h"

namespace sluice::graph {

using base::Json;
using base::text;

namespace {

constexpr base::Range<double> kMicroseconds{-1e14, 1e14};
constexpr const char* kWayOut = ": write the timeline again";

int64_t nanoseconds(const Json& event, const char* key, const std::string& place) {
  return std::llround(base::require_in(event, key, kMicroseconds, place) * 1000);
}

int rank_of(const Json& event, const std::string& place) {
  return base::require_in<int>(event, "pid", {0, kMostTraceRanks - 1}, place);
}

// The current name of an argument. Older traces have some arguments under old names.
const std::string& argument_now(const std::string& key) {
  static const auto kNow = [] {
    std::map<std::string, std::string> now;
    for (const base::Rename& row : base::renames()) {
      if (std::ranges::find(row.where, "trace-STEP.json") != row.where.end()) now[row.old_name] = row.name;
    }
    return now;
  }();
  const auto found = kNow.find(key);
  return found == kNow.end() ? key : found->second;
}

TraceRecord parse_record(const Json& event, const std::string& place) {
  TraceRecord record;
  record.label = base::require<std::string>(event, "name", place);
  record.category = base::require<std::string>(event, "cat", place);
  record.rank = rank_of(event, place);
  const int thread = base::require_in<int>(event, "tid", {1, kTracedStreams}, place);
  record.stream = static_cast<Stream>(thread - 1);
  record.start_ns = nanoseconds(event, "ts", place);
  record.end_ns = record.start_ns + nanoseconds(event, "dur", place);
  if (record.end_ns < record.start_ns)
    throw base::InputError(text(place, ": '", record.label, "' ends before it starts", kWayOut));
  const auto arguments = base::require<Json>(event, "args", place);
  for (const auto& [key, value] : arguments.items()) {
    if (base::holds_integer<int64_t>(value))
      record.arguments.emplace_back(argument_now(key), value.get<int64_t>());
  }
  return record;
}

void parse_counter(const Json& event, const std::string& place, Trace& trace) {
  const auto name = base::require<std::string>(event, "name", place);
  trace.counters.push_back(
      {.name = name,
       .rank = rank_of(event, place),
       .time_ns = nanoseconds(event, "ts", place),
       .value = base::require<int64_t>(base::require<Json>(event, "args", place), name, place)});
}

// The end of an arrow follows the record that it belongs to.
void parse_arrow(const Json& event, TraceRecord::End end, const std::string& place, Trace& trace) {
  if (trace.records.empty())
    throw base::InputError(text(place, ": an arrow that belongs to nothing", kWayOut));
  trace.records.back().flow = base::require<int64_t>(event, "id", place);
  trace.records.back().end = end;
}

void parse_line(std::string_view line, const std::string& place, Trace& trace) {
  if (line.ends_with(',')) line.remove_suffix(1);
  const Json event = base::parse_json(std::string(line), place);
  const auto phase = base::require<std::string>(event, "ph", place);
  if (phase == "X") trace.records.push_back(parse_record(event, place));
  if (phase == "C") parse_counter(event, place, trace);
  if (phase == "s") parse_arrow(event, TraceRecord::End::kSender, place, trace);
  if (phase == "f") parse_arrow(event, TraceRecord::End::kReceiver, place, trace);
}

}  // namespace

Trace parse_chrome_trace(const std::string& bytes, const std::string& name) {
  Trace trace;
  std::string_view rest = bytes;
  if (!rest.starts_with("{\"displayTimeUnit\"") || rest.find("\"traceEvents\":[") == rest.npos)
    throw base::InputError(text(name, " is no timeline that Sluice wrote: give a trace-STEP.json"));
  bool ended = false;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = base::trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with("{\"ph\"")) {
      parse_line(line, text(name, ":", number), trace);
    } else if (line.starts_with(']')) {
      ended = true;
    } else if (number > 1 && !line.empty()) {
      throw base::InputError(text(name, ":", number, ": not an event: ", line.substr(0, 60), kWayOut));
    }
  }
  if (!ended) throw base::InputError(text(name, " is cut off before its end", kWayOut));
  return trace;
}

}  // namespace sluice::graph

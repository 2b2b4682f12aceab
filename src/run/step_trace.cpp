#include "run/step_trace.h"

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "base/text.h"
#include "graph/fsdp_moves.h"
#include "graph/trace.h"
#include "run/measurements.h"

namespace sluice::run {

namespace {

constexpr size_t kMoveWords = 5;

// Collective: by rank, its FSDP all-gathers and reduce-scatters, which are beside the graph's nodes.
std::vector<std::vector<graph::FsdpMove>> gather_moves(survive::Control& control,
                                                       const std::vector<graph::FsdpMove>& own) {
  const int64_t most = std::ranges::max(control.gather(std::ssize(own)));
  std::vector<std::vector<graph::FsdpMove>> moves(static_cast<size_t>(control.world_size()));
  if (most == 0) return moves;
  std::vector<int64_t> words;
  for (const graph::FsdpMove& move : own) {
    words.insert(words.end(), {int64_t{move.node}, move.position, static_cast<int64_t>(move.movement),
                               move.start_ns, move.end_ns});
  }
  words.resize(kMoveWords * static_cast<size_t>(most), -1);
  const auto all = control.gather_lists(words);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t at = 0; at < all[rank].size() && all[rank][at] >= 0; at += kMoveWords) {
      const int64_t* word = &all[rank][at];
      moves[rank].push_back(
          {static_cast<int>(word[0]), word[1], static_cast<cost::Movement>(word[2]), word[3], word[4]});
    }
  }
  return moves;
}

// Records and counters of acts, one after the other.
struct Timelines {
  std::vector<graph::TraceRecord> records;
  std::vector<graph::TraceCounter> counters;
  int64_t end_ns = 0;

  void append(Timelines act, const std::string& name) {
    const int64_t begin_ns = end_ns;
    // The numbers of transfers start anew with each act.
    int64_t flows = 0;
    for (const graph::TraceRecord& record : records) flows = std::max(flows, record.flow + 1);
    for (graph::TraceRecord& record : act.records) {
      if (!name.empty()) record.label = base::text(name, ": ", record.label);
      if (record.flow >= 0) record.flow += flows;
      record.start_ns += begin_ns;
      record.end_ns += begin_ns;
      end_ns = std::max(end_ns, record.end_ns);
      records.push_back(std::move(record));
    }
    for (graph::TraceCounter& counter : act.counters) {
      counter.time_ns += begin_ns;
      counters.push_back(std::move(counter));
    }
  }
};

Timelines measured_timelines(const TracedAct& act, const Measurements& measured,
                             const std::vector<std::vector<graph::FsdpMove>>& moves) {
  Timelines timelines;
  for (size_t r = 0; r < measured.size(); ++r) {
    const auto rank = static_cast<int>(r);
    for (const runtime::Measurement& own : measured[r]) {
      timelines.records.push_back(
          graph::trace_record(act.graph, act.graph.node(own.node), rank, own.start_ns, own.end_ns));
      if (own.held_bytes > 0) timelines.counters.push_back({"memory", rank, own.end_ns, own.held_bytes});
    }
    for (const graph::FsdpMove& move : moves[r])
      timelines.records.push_back(graph::trace_record(act.graph, act.cost.program(), move, rank));
  }
  return timelines;
}

Timelines predicted_timelines(const TracedAct& act) {
  std::vector<int> ranks(act.graph.programs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  Timelines timelines{.records = graph::trace_records(act.graph),
                      .counters = graph::memory_counters(act.graph, act.cost, ranks)};
  const auto gathers = graph::fsdp_records(act.graph, act.cost, ranks);
  timelines.records.insert(timelines.records.end(), gathers.begin(), gathers.end());
  return timelines;
}

void sort_by_rank(std::vector<graph::TraceCounter>& counters) {
  std::ranges::stable_sort(counters, {}, [](const graph::TraceCounter& counter) {
    return std::pair(counter.rank, counter.time_ns);
  });
}

}  // namespace

void write_step_trace(survive::Control& control, const std::vector<TracedAct>& acts,
                      const std::filesystem::path& directory, int64_t epoch) {
  const std::string note =
      epoch == 0 ? "" : base::text("membership ", epoch, " of ", control.world_size(), " ranks");
  Timelines measured, predicted;
  for (const TracedAct& act : acts) {
    const std::string name = acts.size() > 1 ? act.name : "";
    const Measurements of_ranks = gather_measurements(control, act.graph, act.timing);
    const auto moves = gather_moves(control, act.timing.moves);
    measured.append(measured_timelines(act, of_ranks, moves), name);
    predicted.append(predicted_timelines(act), name);
  }
  for (Timelines* const each : {&measured, &predicted}) sort_by_rank(each->counters);
  const int64_t step = acts.back().graph.step;
  control.together("writing the trace", [&] {
    if (control.rank() != 0) return;
    base::write_file_atomically(directory / base::text("trace-", step, ".json"),
                                graph::chrome_trace(measured.records, measured.counters, note));
    base::write_file_atomically(directory / base::text("trace-", step, "-predicted.json"),
                                graph::chrome_trace(predicted.records, predicted.counters, note));
  });
}

}  // namespace sluice::run

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

// Collective: by rank, what it gathered and summed beside its nodes.
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

std::string measured_trace(const graph::StepGraph& graph, const cost::CostModel& cost,
                           const Measurements& measured,
                           const std::vector<std::vector<graph::FsdpMove>>& moves, const std::string& note) {
  std::vector<graph::TraceRecord> records;
  std::vector<graph::TraceCounter> counters;
  for (size_t r = 0; r < measured.size(); ++r) {
    const auto rank = static_cast<int>(r);
    for (const runtime::Measurement& own : measured[r]) {
      records.push_back(graph::trace_record(graph, graph.node(own.node), rank, own.start_ns, own.end_ns));
      if (own.held_bytes > 0) counters.push_back({"memory", rank, own.end_ns, own.held_bytes});
    }
    for (const graph::FsdpMove& move : moves[r])
      records.push_back(graph::trace_record(graph, cost.program(), move, rank));
  }
  std::ranges::stable_sort(counters, {}, [](const graph::TraceCounter& counter) {
    return std::pair(counter.rank, counter.time_ns);
  });
  return graph::chrome_trace(records, counters, note);
}

std::string predicted_trace(const graph::StepGraph& graph, const cost::CostModel& cost,
                            const std::string& note) {
  std::vector<int> ranks(graph.programs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<graph::TraceRecord> records = graph::trace_records(graph);
  const auto gathers = graph::fsdp_records(graph, cost, ranks);
  records.insert(records.end(), gathers.begin(), gathers.end());
  return graph::chrome_trace(records, graph::memory_counters(graph, cost, ranks), note);
}

}  // namespace

void write_step_trace(survive::Control& control, const graph::StepGraph& graph, const cost::CostModel& cost,
                      const runtime::StepTiming& timing, const std::filesystem::path& directory,
                      int64_t epoch) {
  const std::string note =
      epoch == 0 ? "" : base::text("membership ", epoch, " of ", control.world_size(), " ranks");
  const Measurements measured = gather_measurements(control, graph, timing);
  const auto moves = gather_moves(control, timing.moves);
  control.together("writing the trace", [&] {
    if (control.rank() != 0) return;
    base::write_file_atomically(directory / base::text("trace-", graph.step, ".json"),
                                measured_trace(graph, cost, measured, moves, note));
    base::write_file_atomically(directory / base::text("trace-", graph.step, "-predicted.json"),
                                predicted_trace(graph, cost, note));
  });
}

}  // namespace sluice::run

#include "run/measurements.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace sluice::run {

Measurements gather_measurements(survive::Control& control, const graph::StepGraph& graph,
                                 const runtime::StepTiming& timing) {
  constexpr size_t kWords = 4;
  size_t longest = 0;
  for (const std::vector<int>& program : graph.programs) longest = std::max(longest, program.size());
  std::vector<int64_t> words;
  for (const runtime::Measurement& own : timing.nodes)
    words.insert(words.end(), {own.start_ns, own.end_ns, own.held_bytes, own.waited_ns});
  words.resize(kWords * longest, 0);
  const auto of_ranks = control.gather_lists(words);
  Measurements measured(graph.programs.size());
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    const int64_t* word = of_ranks[rank].data();
    for (const int node : graph.programs[rank]) {
      measured[rank].push_back({node, word[0], word[1], word[2], word[3]});
      word += kWords;
    }
  }
  return measured;
}

graph::StepTimes times_of(const graph::StepGraph& graph, const Measurements& measured) {
  graph::StepTimes times(measured.size());
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    for (const runtime::Measurement& own : measured[rank])
      times[rank].push_back({own.start_ns, own.end_ns, own.waited_ns});
  }
  graph::align(graph, times);
  return times;
}

std::vector<report::PathShare> path_shares(const graph::StepGraph& graph, const graph::StepTimes& times) {
  constexpr size_t kMostShares = 24;
  std::map<std::pair<int, graph::PathKind>, report::PathShare> by_place;
  for (const graph::PathPiece& piece : graph::critical_path(graph, times)) {
    report::PathShare& share = by_place[{piece.rank, piece.kind}];
    share.time_ns += piece.end_ns - piece.begin_ns;
    share.planned_ns += piece.planned_ns;
  }
  std::vector<report::PathShare> shares;
  for (auto& [place, share] : by_place) {
    share.rank = place.first;
    share.kind = graph::name_of(place.second);
    shares.push_back(std::move(share));
  }
  std::ranges::stable_sort(shares, std::greater{}, &report::PathShare::time_ns);
  shares.resize(std::min(shares.size(), kMostShares));
  return shares;
}

}  // namespace sluice::run

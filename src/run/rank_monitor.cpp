#include "run/rank_monitor.h"

#include <algorithm>
#include <cmath>

#include "graph/step_times.h"

namespace sluice::run {

using watch::Figure;

RankStatus RankMonitor::status(const runtime::StepResult& result) {
  RankStatus word;
  watch::Sample& sample = word.sample;
  const auto pace = [&](Figure figure, const runtime::MeasuredWork& work) {
    if (work.planned_ns > 0) sample[figure] = work.slowdown_ppm();
  };
  pace(Figure::kSlowdown, result.own.cells());
  pace(Figure::kAttentionSlowdown, result.own.attention);
  pace(Figure::kGemmSlowdown, result.own.gemms);
  pace(Figure::kCopySlowdown, result.own.copies);
  pace(Figure::kUpdateSlowdown, result.own.update);
  sample[Figure::kCompute] = result.own.cells().measured_ns;
  sample[Figure::kHost] = std::max<int64_t>(0, result.timing.overhead_ns());
  sample[Figure::kWait] = result.waits.sum();
  using runtime::WaitCause;
  constexpr std::pair<Figure, WaitCause> kWaits[] = {
      {Figure::kPullWait, WaitCause::kPull},   {Figure::kPushWait, WaitCause::kPush},
      {Figure::kStageWait, WaitCause::kStage}, {Figure::kLaneWait, WaitCause::kLanes},
      {Figure::kFsdpWait, WaitCause::kFsdp},   {Figure::kTensorWait, WaitCause::kTensor},
      {Figure::kCopyWait, WaitCause::kCopies}, {Figure::kEndWait, WaitCause::kEnd}};
  for (const auto& [figure, cause] : kWaits) sample[figure] = result.waits[cause];
  machine_.take(sample);
  word.first_of_host = first_of_host_;
  for (const auto& [rank, waited_ns] : result.timing.stalled_for) {
    if (waited_ns <= word.awaited_ns) continue;
    word.awaited_rank = rank;
    word.awaited_ns = waited_ns;
  }
  return word;
}

namespace {

bool on_one_host(const RankStatus& one, const RankStatus& other) {
  return one.first_of_host >= 0 && one.first_of_host == other.first_of_host;
}

// By rank, the sum of others' waits for it for which counts(waiting, awaited) holds.
template <typename Counts>
std::vector<int64_t> awaited_where(std::span<const RankStatus> words, Counts counts) {
  std::vector<int64_t> sums(words.size(), 0);
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const int64_t awaited = words[rank].awaited_rank;
    if (awaited < 0 || awaited >= std::ssize(words)) continue;
    if (counts(rank, static_cast<size_t>(awaited)))
      sums[static_cast<size_t>(awaited)] += words[rank].awaited_ns;
  }
  return sums;
}

// By rank, as graph::awaited_ns, over links between machines; empty if no rank waited, or no transport
// reports the awaited rank. Ranks of one machine share no link: if they wait for each other, a process is
// late. Of two ranks the one that all others together await more is the late one: its own waits count for
// nobody, and a rank that waited for it may be late by as much.
std::vector<int64_t> awaited_by_others(std::span<const RankStatus> words) {
  if (std::ranges::all_of(words, [](const RankStatus& word) { return word.awaited_rank < 0; })) return {};
  const std::vector<int64_t> by_all = awaited_where(words, [](size_t, size_t) { return true; });
  std::vector<int64_t> over_links = awaited_where(words, [&](size_t waiting, size_t awaited) {
    return by_all[awaited] >= by_all[waiting] && !on_one_host(words[waiting], words[awaited]);
  });
  for (int64_t& sum : over_links) sum /= std::max<int64_t>(1, std::ssize(words) - 1);
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const int64_t later = words[rank].awaited_rank;
    if (later < 0 || later >= std::ssize(words)) continue;
    if (by_all[static_cast<size_t>(later)] > by_all[rank])
      over_links[rank] = std::max<int64_t>(0, over_links[rank] - words[rank].awaited_ns);
  }
  return over_links;
}

}  // namespace

std::vector<watch::Detector::Change> RankMonitor::observe(std::span<const RankStatus> words,
                                                          const graph::StepGraph& graph,
                                                          report::StepRecord& step) {
  std::vector<watch::Sample> samples;
  for (const RankStatus& word : words) samples.push_back(word.sample);
  std::vector<int64_t> awaited = awaited_by_others(words);
  // Planned waits are only computed if a measured wait was long.
  constexpr int64_t kPartWorthAsking = 10;
  if (!awaited.empty() && std::ranges::max(awaited) > graph.makespan_ns / kPartWorthAsking) {
    const std::vector<int64_t> planned = graph::planned_awaited_ns(graph);
    for (size_t rank = 0; rank < awaited.size(); ++rank)
      awaited[rank] = std::max<int64_t>(0, awaited[rank] - planned[rank]);
  }
  for (size_t rank = 0; rank < awaited.size(); ++rank) samples[rank][Figure::kAwaited] = awaited[rank];
  step.figures = watch::Figures(samples);
  // Scores are relative to the plan, which is the same on all ranks, unlike their clocks.
  std::vector<watch::Detector::Change> changes =
      detector_.add(step.step, watch::scores_of(step.figures, graph.makespan_ns));
  step.alarms = detector_.alarms();
  const std::vector<double>& paces = step.figures[Figure::kSlowdown];
  scatter_.add(paces);
  for (size_t rank = 0; rank < paces.size(); ++rank) {
    if (std::isnan(paces[rank]) || paces[rank] <= step.max_slowdown.value_or(0)) continue;
    step.slowest_rank = static_cast<int64_t>(rank);
    step.max_slowdown = paces[rank];
  }
  return changes;
}

std::vector<int> RankMonitor::slowdown_percent(int ranks) const {
  constexpr double kGrain = 5;
  constexpr int kMost = 1000;  // a rank slower than this is as good as lost
  std::vector<int> percent(static_cast<size_t>(ranks), 100);
  for (const watch::Alarm& alarm : detector_.alarms()) {
    if (alarm.cause != watch::Cause::kSlowdown) continue;
    const double rounded = kGrain * std::round(100 * alarm.score / kGrain);
    percent[static_cast<size_t>(alarm.rank)] = std::clamp(static_cast<int>(rounded), 100, kMost);
  }
  return percent;
}

std::optional<watch::Alarm> RankMonitor::slowest() const {
  std::optional<watch::Alarm> slowest;
  for (const watch::Alarm& alarm : detector_.alarms()) {
    const bool slower = !slowest || alarm.score > slowest->score;
    if (alarm.cause == watch::Cause::kSlowdown && slower) slowest = alarm;
  }
  return slowest;
}

}  // namespace sluice::run

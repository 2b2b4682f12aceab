#include "plan/search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice::plan {
namespace {

constexpr int kPackRounds = 6;
constexpr int64_t kGoalPartsPerTenThousand = 5;     // 0.05 % above the bound is near enough
constexpr int64_t kStartDistances[] = {2, 10, 30};  // from the bound, in thousandths

int64_t above(int64_t value, int64_t parts, int64_t of) {
  return value + static_cast<int64_t>(cost::Wide{value} * parts / of);
}

}  // namespace

SortedBatch::SortedBatch(std::vector<int64_t> batch_lengths) : lengths(std::move(batch_lengths)) {
  sequence_of.resize(lengths.size());
  std::iota(sequence_of.begin(), sequence_of.end(), 0);
  std::stable_sort(sequence_of.begin(), sequence_of.end(), [&](int a, int b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  for (const int sequence : sequence_of) sorted.push_back(lengths[static_cast<size_t>(sequence)]);
}

int64_t last_end_ns(const std::vector<PackedPipeline>& packed) {
  int64_t last = 0;
  for (const PackedPipeline& pipeline : packed) last = std::max(last, pipeline.makespan_ns);
  return last;
}

CandidateSearch::CandidateSearch(const strategy::Strategy& strategy,
                                 const std::map<strategy::Scheme, SchemeCost>& schemes,
                                 const cost::CostModel& cost, const SortedBatch& batch)
    : strategy_(&strategy), cost_(&cost), batch_(&batch) {
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const SchemeCost* scheme = &schemes.at(pipeline.scheme);
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const SchemeGroup& known) { return known.scheme == scheme; });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), {scheme, 0});
    ++group->pipelines;
    group_of_.push_back(static_cast<int>(group - groups_.begin()));
  }
  floors_ = std::make_unique<FloorTable>(batch.sorted, groups_);
  bound_ = lower_bound(batch.sorted, groups_, *floors_);
}

std::optional<int64_t> CandidateSearch::lower_bound_ns() const {
  return bound_ ? std::optional(bound_->lower_ns) : std::nullopt;
}

// Half a micro-batch's constant for the last, partly filled one; for stages the even pipeline's bubble.
std::vector<int64_t> CandidateSearch::first_overheads() const {
  std::vector<int64_t> overheads;
  for (size_t p = 0; p < group_of_.size(); ++p) {
    const SchemeCost& scheme = scheme_of(p);
    const int pp = scheme.scheme().pp;
    const int64_t constant_ns = scheme.micro_batch_ns();
    int64_t overhead = constant_ns / 2;
    if (pp > 1 && !batch_->sorted.empty()) {
      const std::vector<int> counts = micro_batch_counts(bound_->lower_ns, constant_ns, pp, 1, 1 << 20);
      const int64_t count = counts[counts.size() / 2];
      overhead = count * constant_ns + bound_->lower_ns * (pp - 1) / (3 * count);
    }
    overheads.push_back(std::min(overhead, bound_->lower_ns));
  }
  return overheads;
}

Assignment CandidateSearch::start() const {
  const int steps = 2 * static_cast<int>(floors_->sequences()) + 20;
  const std::vector<int64_t> overheads = first_overheads();
  std::optional<Assignment> best;
  const auto consider = [&](int64_t target_ns) {
    Assignment next(*floors_, group_of_, overheads);
    next.fill(bound_->prices, target_ns);
    next.improve(bound_->lower_ns, steps);
    if (!best || next.estimated_ns() < best->estimated_ns()) best = std::move(next);
  };
  int64_t least = bound_->lower_ns;
  for (const int64_t overhead : overheads) least = std::max(least, bound_->lower_ns + overhead / 2);
  for (const int64_t distance : kStartDistances) consider(above(bound_->lower_ns, distance, 1000));
  consider(least);
  consider(-1);  // nothing is in time: each to the pipeline that ends first
  return std::move(*best);
}

PackedPipeline CandidateSearch::pack_pipeline(size_t pipeline, const std::vector<int>& members) const {
  std::vector<int> sequences;
  for (const int member : members) sequences.push_back(batch_->sequence_of[static_cast<size_t>(member)]);
  return pack(strategy_->pipelines[pipeline], scheme_of(pipeline), *cost_, batch_->lengths, sequences);
}

std::vector<PackedPipeline> CandidateSearch::run() {
  const size_t pipelines = group_of_.size();
  const int steps = static_cast<int>(floors_->sequences()) + 20;
  const int64_t goal_ns = above(bound_->lower_ns, kGoalPartsPerTenThousand, 10'000);
  Assignment assignment = start();
  std::vector<PackedPipeline> packed;
  std::vector<std::vector<int>> members;
  for (size_t p = 0; p < pipelines; ++p) {
    members.push_back(assignment.members(static_cast<int>(p)));
    packed.push_back(pack_pipeline(p, members.back()));
  }
  std::vector<PackedPipeline> best = packed;
  for (int round = 0; round < kPackRounds && last_end_ns(best) > goal_ns; ++round) {
    for (size_t p = 0; p < pipelines; ++p) {
      if (members[p].empty()) continue;
      const int pipeline = static_cast<int>(p);
      assignment.set_overhead_ns(pipeline, packed[p].makespan_ns - assignment.work_ns(pipeline));
    }
    assignment.improve(goal_ns, steps);
    bool changed = false;
    for (size_t p = 0; p < pipelines; ++p) {
      if (assignment.members(static_cast<int>(p)) == members[p]) continue;
      changed = true;
      members[p] = assignment.members(static_cast<int>(p));
      packed[p] = pack_pipeline(p, members[p]);
    }
    if (!changed) break;
    if (last_end_ns(packed) < last_end_ns(best)) best = packed;
  }
  return best;
}

}  // namespace sluice::plan

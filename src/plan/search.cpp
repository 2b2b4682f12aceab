#include "plan/search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/never.h"
#include "plan/bins.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

constexpr int kRoundsInVain = 2;

}  // namespace

SortedBatch::SortedBatch(std::vector<int64_t> batch_lengths) : lengths(std::move(batch_lengths)) {
  sequence_of.resize(lengths.size());
  std::iota(sequence_of.begin(), sequence_of.end(), 0);
  std::stable_sort(sequence_of.begin(), sequence_of.end(), [&](int a, int b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  for (const int sequence : sequence_of) sorted.push_back(lengths[static_cast<size_t>(sequence)]);
}

CandidateSearch::CandidateSearch(const strategy::Strategy& strategy, const SchemeCosts& schemes,
                                 const SortedBatch& batch, Seeds seeds)
    : strategy_(&strategy), batch_(&batch), seeds_(seeds) {
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const SchemeCost* scheme = &schemes.of(pipeline);
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const SchemeGroup& known) { return known.scheme == scheme; });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), {scheme, 0});
    ++group->pipelines;
    group_of_.push_back(static_cast<size_t>(group - groups_.begin()));
  }
  floors_ = std::make_unique<FloorTable>(batch.sorted, groups_);
  bound_ = first_bound(batch.sorted, groups_, *floors_);
}

std::optional<int64_t> CandidateSearch::lower_bound_ns() const {
  return bound_ ? std::optional(bound_->lower_ns) : std::nullopt;
}

void CandidateSearch::raise_bound(int64_t enough_ns) {
  plan::raise_bound(batch_->sorted, groups_, *floors_, enough_ns, *bound_);
}

// With stages: the bubble of an even pipeline. With lanes:
// half a constant for the last, partly filled micro-batches.
std::vector<int64_t> CandidateSearch::first_overheads() const {
  std::vector<int64_t> overheads;
  for (const SchemeGroup& group : groups_) {
    const SchemeCost& scheme = *group.scheme;
    const int pp = scheme.scheme().pp;
    const int64_t constant_ns = scheme.micro_batch_ns();
    int64_t overhead = scheme.scheme().cp > 1 ? constant_ns / 2 : 0;
    if (pp > 1 && !batch_->sorted.empty()) {
      const int64_t count = even_micro_batches(bound_->start_ns, constant_ns, pp);
      overhead = count * constant_ns + bound_->start_ns * (pp - 1) / (2 * count);
    }
    overheads.push_back(std::min(overhead, bound_->start_ns));
  }
  return overheads;
}

Assignment CandidateSearch::filled(int64_t target_ns) const {
  Assignment assignment(*floors_, group_of_, first_overheads());
  assignment.fill(bound_->prices, target_ns);
  return assignment;
}

Assignment CandidateSearch::start() const {
  int64_t target_ns = bound_->start_ns;
  for (const int64_t overhead_ns : first_overheads())
    target_ns = std::max(target_ns, bound_->start_ns + overhead_ns / 2);
  Assignment by_price = filled(target_ns);
  Assignment soonest = filled(Assignment::kNoTarget);
  by_price.improve(bound_->start_ns);
  soonest.improve(bound_->start_ns);
  return soonest.estimated_ns() < by_price.estimated_ns() ? soonest : by_price;
}

const PackedPipeline& CandidateSearch::pack_pipeline(size_t pipeline, const std::vector<Place>& members,
                                                     bool improves, int64_t enough_ns) const {
  const SchemeCost& scheme = scheme_of(pipeline);
  improves = improves && worth_improving(scheme.scheme());
  const auto [at, is_new] = known_.try_emplace({pipeline, improves, members});
  Known& known = at->second;
  // A packing that ended early at a goal may get better.
  const bool ended_early = known.packed.makespan_ns <= known.enough_ns;
  if (!is_new && (!ended_early || known.packed.makespan_ns <= enough_ns)) return known.packed;
  std::vector<int> sequences;
  for (const Place member : members) sequences.push_back(batch_->sequence_of[member]);
  known.enough_ns = enough_ns;
  known.packed = pack(strategy_->pipelines[pipeline], scheme, batch_->lengths, sequences,
                      {.improves = improves, .enough_ns = enough_ns, .seeds = seeds_, .below_ns = below_ns_})
                     .value_or(PackedPipeline{.plan = {}, .makespan_ns = base::kNever});
  return known.packed;
}

// On one lane without stages the packer's few micro-batches are optimal in any order. With FSDP
// passes stay as they are. For many sequences on lanes single moves gain less than timing them costs.
bool CandidateSearch::worth_improving(const strategy::Scheme& scheme) const {
  if (scheme.fsdp > 1) return false;
  return scheme.cp == 1 ? scheme.pp > 1 : is_few();
}

bool CandidateSearch::is_few() const { return floors_->sequences() <= kFewSequences; }

bool CandidateSearch::has_stages() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const SchemeGroup& group) { return group.scheme->scheme().pp > 1; });
}

int64_t CandidateSearch::expected_ns() const {
  const std::vector<int64_t> overheads = first_overheads();
  return bound_->start_ns + *std::max_element(overheads.begin(), overheads.end());
}

void CandidateSearch::pack_changed(const Assignment& assignment, std::vector<size_t> changed, bool improves,
                                   PackedAssignment& packed) const {
  for (const size_t p : changed) packed.pipelines[p].makespan_ns = 0;
  std::stable_sort(changed.begin(), changed.end(),
                   [&](size_t a, size_t b) { return assignment.end_ns(a) > assignment.end_ns(b); });
  int64_t last_ns = packed.end_ns();
  for (const size_t p : changed) {
    packed.members[p] = assignment.members(p);
    packed.pipelines[p] = pack_pipeline(p, packed.members[p], improves, last_ns - last_ns / kNearPart);
    last_ns = std::max(last_ns, packed.pipelines[p].makespan_ns);
  }
}

void CandidateSearch::set_overheads(const PackedAssignment& packed, Assignment& assignment) const {
  for (size_t p = 0; p < group_of_.size(); ++p) {
    if (!packed.members[p].empty()) assignment.set_end_ns(p, packed.pipelines[p].makespan_ns);
  }
}

PackedAssignment CandidateSearch::pack_and_improve(Assignment assignment, int64_t goal_ns,
                                                   bool improves) const {
  PackedAssignment now{.pipelines = std::vector<PackedPipeline>(group_of_.size()),
                       .members = std::vector<std::vector<Place>>(group_of_.size())};
  std::vector<size_t> all(group_of_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  pack_changed(assignment, all, improves, now);
  PackedAssignment best = now;
  for (int in_vain = 0; in_vain < kRoundsInVain && best.end_ns() > goal_ns;) {
    set_overheads(now, assignment);
    assignment.improve(goal_ns);
    std::vector<size_t> changed;
    for (size_t p = 0; p < group_of_.size(); ++p) {
      if (assignment.members(p) != now.members[p]) changed.push_back(p);
    }
    if (changed.empty()) break;
    pack_changed(assignment, std::move(changed), improves, now);
    if (now.end_ns() < best.end_ns()) {
      best = now;
      in_vain = 0;
    } else {
      ++in_vain;
    }
  }
  return best;
}

const std::vector<PackedPipeline>& CandidateSearch::run(Effort effort, int64_t below_ns) {
  if (strategy_->pipelines.size() == 1) below_ns_ = below_ns;
  const int64_t goal_ns = bound_->lower_ns + bound_->lower_ns / kNegligiblePart;
  if (packed_.pipelines.empty()) packed_ = pack_and_improve(start(), goal_ns, false);
  if (packed_.end_ns() == base::kNever) {
    packed_ = {};
    given_up_ns_ = below_ns;
  }
  if (effort == Effort::kQuick || end_ns() <= goal_ns || packed_.pipelines.empty()) return packed_.pipelines;
  const auto consider = [&](Assignment assignment, bool improves) {
    PackedAssignment next = pack_and_improve(std::move(assignment), goal_ns, improves);
    if (next.end_ns() < packed_.end_ns()) std::swap(next, packed_);
  };
  if (packed_.pipelines.size() > 1 && has_stages() && seeds_.has(Seed::kSoonest))
    consider(filled(Assignment::kNoTarget), false);
  if (!seeds_.has(Seed::kThorough)) return packed_.pipelines;
  std::vector<size_t> pipeline_of(floors_->sequences());
  for (size_t p = 0; p < packed_.members.size(); ++p) {
    for (const Place member : packed_.members[p]) pipeline_of[member] = p;
  }
  Assignment again(*floors_, group_of_, first_overheads());
  again.place(pipeline_of);
  set_overheads(packed_, again);
  consider(std::move(again), true);
  if (is_few()) {
    FewSequences(
        {.pack = [this](size_t pipeline, const std::vector<Place>& members) -> const PackedPipeline& {
           return pack_pipeline(pipeline, members, true);
         },
         .fits = [this](Place place, size_t pipeline) { return floors_->fits(place, group_of_[pipeline]); },
         .equal = [this](Place a, Place b) { return batch_->sorted[a] == batch_->sorted[b]; }})
        .improve(packed_, goal_ns);
  }
  return packed_.pipelines;
}

}  // namespace sluice::plan

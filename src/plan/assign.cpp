#include "plan/assign.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

constexpr int kMostTargets = 2;  // pipelines of a group

}  // namespace

Assignment::Assignment(const FloorTable& floors, std::span<const size_t> group_of,
                       std::vector<int64_t> overheads_ns)
    : floors_(&floors), first_overheads_ns_(std::move(overheads_ns)) {
  for (const size_t group : group_of)
    pipelines_.push_back({.group = group, .overhead_ns = first_overheads_ns_[group]});
}

Assignment::Load Assignment::changed(const Pipeline& of, Place gone, Place come) const {
  Load load = of.load;
  if (gone != kNone) {
    load.work_ns -= work_ns(gone, of.group);
    load.tokens -= floors_->tokens(gone);
    if (gone == load.longest) load.longest = of.members.size() > 1 ? of.members[1] : kNone;
  }
  if (come != kNone) {
    load.work_ns += work_ns(come, of.group);
    load.tokens += floors_->tokens(come);
    load.longest = std::min(load.longest, come);
  }
  return load;
}

void Assignment::add(Pipeline& to, Place sequence) {
  to.load = changed(to, kNone, sequence);
  to.members.insert(std::lower_bound(to.members.begin(), to.members.end(), sequence), sequence);
}

void Assignment::remove(Pipeline& from, Place sequence) {
  from.load = changed(from, sequence, kNone);
  from.members.erase(std::lower_bound(from.members.begin(), from.members.end(), sequence));
}

// In each group only two pipelines can be best:
// the first empty one and the one that ends first.
void Assignment::fill(std::span<const int64_t> prices, int64_t target_ns) {
  using End = std::pair<int64_t, size_t>;
  struct Group {
    std::queue<size_t> empty;
    std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  };
  std::vector<Group> groups(floors_->groups());
  for (size_t p = 0; p < pipelines_.size(); ++p) groups[pipelines_[p].group].empty.push(p);
  for (Place sequence(0); sequence < floors_->sequences(); ++sequence) {
    // Timely offers beat late ones. Late offers compare by end, timely ones by price.
    std::optional<std::tuple<bool, cost::Wide, int64_t, size_t>> best;
    for (size_t k = 0; k < groups.size(); ++k) {
      if (!floors_->fits(sequence, k)) continue;
      const int64_t floor_ns = floors_->floor_ns(sequence, k);
      const auto offer = [&](int64_t before_ns, size_t pipeline) {
        const int64_t end_ns = before_ns + floor_ns;
        const bool late = end_ns > target_ns;
        const cost::Wide cost = late ? cost::Wide{end_ns} : cost::Wide{prices[k]} * floor_ns;
        const std::tuple key(late, cost, end_ns, pipeline);
        if (!best || key < *best) best = key;
      };
      if (!groups[k].ends.empty()) std::apply(offer, groups[k].ends.top());
      if (groups[k].empty.empty()) continue;
      const Pipeline& empty = pipelines_[groups[k].empty.front()];
      // Half a constant for the last, partly filled micro-batch.
      const int64_t unfilled_ns = floors_->batch_tokens(k) > 0 ? floors_->constant_ns(k) / 2 : 0;
      offer(empty.overhead_ns + bubble_ns(empty, sequence) + unfilled_ns, groups[k].empty.front());
    }
    SLUICE_ASSERT(best, "a sequence fits no pipeline");
    const auto [late, cost, end_ns, pipeline] = *best;
    Pipeline& to = pipelines_[pipeline];
    Group& group = groups[to.group];
    if (to.members.empty()) {
      group.empty.pop();
    } else {
      group.ends.pop();
    }
    group.ends.emplace(end_ns, pipeline);
    add(to, sequence);
  }
}

void Assignment::place(std::span<const size_t> pipeline_of) {
  for (Place sequence(0); sequence < pipeline_of.size(); ++sequence)
    add(pipelines_[pipeline_of[sequence]], sequence);
}

size_t Assignment::last() const {
  const auto later = [this](const Pipeline& a, const Pipeline& b) { return end_ns(a) < end_ns(b); };
  return static_cast<size_t>(std::max_element(pipelines_.begin(), pipelines_.end(), later) -
                             pipelines_.begin());
}

int64_t Assignment::estimated_ns() const { return pipelines_.empty() ? 0 : end_ns(last()); }

void Assignment::consider(const Pipeline& from, const Step& step, Step& best) const {
  if (step.back != kNone && !floors_->fits(step.back, from.group)) return;
  const Pipeline& to = pipelines_[step.to];
  const int64_t later_ns = std::max(end_ns(from, changed(from, step.sequence, step.back)),
                                    end_ns(to, changed(to, step.back, step.sequence)));
  if (later_ns >= best.end_ns) return;
  best = step;
  best.end_ns = later_ns;
}

// The ideal partner evens out both pipelines. Work falls along a pipeline's members.
void Assignment::try_swaps(const Pipeline& from, Place sequence, size_t to, Step& best) const {
  const Pipeline& other = pipelines_[to];
  const int64_t excess_ns = (end_ns(from) - end_ns(other)) / 2;
  const int64_t ideal_ns = work_ns(sequence, other.group) - excess_ns;
  const auto at = std::partition_point(other.members.begin(), other.members.end(),
                                       [&](Place member) { return work_ns(member, other.group) > ideal_ns; });
  if (at != other.members.end()) consider(from, {.sequence = sequence, .to = to, .back = *at}, best);
  if (at != other.members.begin()) consider(from, {.sequence = sequence, .to = to, .back = *(at - 1)}, best);
}

std::vector<size_t> Assignment::soonest_of_groups() const {
  std::vector<size_t> order(pipelines_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return end_ns(a) < end_ns(b); });
  std::vector<int> taken(floors_->groups(), 0);
  std::erase_if(order, [&](size_t p) { return ++taken[pipelines_[p].group] > kMostTargets; });
  return order;
}

Assignment::Step Assignment::best_step(const Pipeline& from, int64_t goal_ns) const {
  Step best{.end_ns = end_ns(from) - end_ns(from) / kNegligiblePart};
  for (const size_t to : soonest_of_groups()) {
    const Pipeline& other = pipelines_[to];
    if (&other == &from || end_ns(other) >= best.end_ns) continue;
    for (const Place sequence : from.members) {
      if (!floors_->fits(sequence, other.group)) continue;
      consider(from, {.sequence = sequence, .to = to}, best);
      try_swaps(from, sequence, to, best);
    }
    if (best.end_ns <= goal_ns) break;
  }
  return best;
}

void Assignment::improve(int64_t goal_ns) {
  for (size_t step = 0; step < floors_->sequences(); ++step) {
    Pipeline& from = pipelines_[last()];
    if (end_ns(from) <= goal_ns) return;
    const Step best = best_step(from, goal_ns);
    if (best.sequence == kNone) return;
    Pipeline& to = pipelines_[best.to];
    remove(from, best.sequence);
    if (best.back != kNone) {
      remove(to, best.back);
      add(from, best.back);
    }
    add(to, best.sequence);
  }
}

}  // namespace sluice::plan

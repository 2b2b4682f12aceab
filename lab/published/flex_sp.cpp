#include "published/flex_sp.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::published {
namespace {

constexpr int kMoreMicroBatches = 4;

struct LanePart {
  std::vector<int> sequences;  // indices into the batch
  FlexSpGroups groups;         // groups have indices into `sequences`
};
struct Batch {
  std::vector<LanePart> micro_batches;
  int64_t time_ns = 0;
};

std::vector<int> by_descending_length(std::span<const int64_t> lengths) {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int s) { return lengths[static_cast<size_t>(s)]; });
  return order;
}

// The work of one rank of a group.
cost::Work share_of(const cost::Work& work, int size) {
  return {.tokens = (work.tokens + size - 1) / size,
          .windowed = (work.windowed + size - 1) / size,
          .squares = (work.squares + size - 1) / size};
}

// Sizes after one step of the search: one group split in two, or two equal ones joined.
std::vector<std::vector<int>> neighbours(const std::vector<int>& sizes, int largest) {
  std::set<std::vector<int>> found;
  const auto add = [&](std::vector<int> next) {
    std::ranges::sort(next, std::greater());
    found.insert(std::move(next));
  };
  for (size_t g = 0; g < sizes.size(); ++g) {
    if (g > 0 && sizes[g] == sizes[g - 1]) continue;
    std::vector<int> next = sizes;
    if (sizes[g] > 1) {
      next[g] /= 2;
      next.push_back(next[g]);
      add(next);
    }
    if (g + 1 < sizes.size() && sizes[g + 1] == sizes[g] && 2 * sizes[g] <= largest) {
      next = sizes;
      next[g] *= 2;
      next.erase(next.begin() + static_cast<std::ptrdiff_t>(g) + 1);
      add(next);
    }
  }
  return {found.begin(), found.end()};
}

// Replaces `best` by `next` if that exists and is faster; returns whether it did.
bool take_faster(std::optional<FlexSpGroups>& best, std::optional<FlexSpGroups> next) {
  if (!next || (best && next->time_ns >= best->time_ns)) return false;
  best = std::move(next);
  return true;
}

// Sequences in groups of given sizes, improved by single moves and exchanges.
class Assignment {
 public:
  Assignment(FlexSpGroups groups, std::span<const int64_t> lengths, const FlexSpCost& cost)
      : groups_(std::move(groups)), lengths_(lengths), cost_(cost), loads_(groups_.sizes.size()) {
    for (size_t g = 0; g < loads_.size(); ++g) {
      for (const int s : groups_.sequences[g]) loads_[g] = with(loads_[g], s, g);
      loads_[g].ns = ns_of(loads_[g], g);
    }
  }

  FlexSpGroups improved() {
    while (improve_slowest()) {
    }
    groups_.time_ns = loads_[slowest()].ns;
    return std::move(groups_);
  }

 private:
  struct Load {
    cost::Work work;
    int64_t on_lane = 0;  // tokens
    int64_t ns = 0;
  };
  // The new state of two groups.
  struct Change {
    size_t to = 0;
    int leaves = -1;  // the sequence that leaves the slowest group
    int comes = -1;   // the sequence from the other one; -1: none
    Load of_slowest, of_other;
    int64_t slower_ns() const { return std::max(of_slowest.ns, of_other.ns); }
  };

  Load with(Load load, int sequence, size_t group) const {
    const int64_t length = lengths_[static_cast<size_t>(sequence)];
    load.work += cost_.work_of(length);
    load.on_lane += tokens_on_lane(length, groups_.sizes[group]);
    return load;
  }
  Load without(Load load, int sequence, size_t group) const {
    const int64_t length = lengths_[static_cast<size_t>(sequence)];
    load.work -= cost_.work_of(length);
    load.on_lane -= tokens_on_lane(length, groups_.sizes[group]);
    return load;
  }
  int64_t ns_of(const Load& load, size_t group) const {
    return load.work.tokens == 0 ? 0 : cost_.time_ns(load.work, groups_.sizes[group]);
  }
  bool fits(const Load& load, size_t group) const {
    return load.on_lane <= cost_.capacity_tokens(groups_.sizes[group]);
  }
  size_t slowest() const {
    const auto found = std::ranges::max_element(loads_, {}, &Load::ns);
    return static_cast<size_t>(found - loads_.begin());
  }

  int64_t least_ns() const { return std::ranges::min(loads_, {}, &Load::ns).ns; }

  // A sample of the sequences, spread over lengths, because they come by descending length.
  static std::vector<int> some_of(const std::vector<int>& sequences) {
    constexpr size_t kMost = 12;
    if (sequences.size() <= kMost) return sequences;
    std::vector<int> some;
    for (size_t i = 0; i < kMost; ++i) some.push_back(sequences[i * (sequences.size() - 1) / (kMost - 1)]);
    return some;
  }

  // Makes the change between the slowest group and another one after which the slower of both ends soonest.
  bool improve_slowest() {
    const size_t from = slowest();
    Change best{.of_slowest = loads_[from]};
    const auto consider = [&](size_t to, int leaves, int comes) {
      Change change{to, leaves, comes, without(loads_[from], leaves, from), with(loads_[to], leaves, to)};
      if (comes >= 0) {
        change.of_slowest = with(change.of_slowest, comes, from);
        change.of_other = without(change.of_other, comes, to);
      }
      if (!fits(change.of_slowest, from) || !fits(change.of_other, to)) return;
      change.of_slowest.ns = ns_of(change.of_slowest, from);
      change.of_other.ns = ns_of(change.of_other, to);
      if (change.slower_ns() < best.slower_ns()) best = change;
    };
    const std::vector<int> leaving = some_of(groups_.sequences[from]);
    const int64_t room_ns = least_ns() + (loads_[from].ns - least_ns()) / 2;
    for (size_t to = 0; to < loads_.size(); ++to) {
      if (to == from || loads_[to].ns > room_ns) continue;
      const std::vector<int> coming = some_of(groups_.sequences[to]);
      for (const int leaves : leaving) {
        consider(to, leaves, -1);
        for (const int comes : coming) consider(to, leaves, comes);
      }
    }
    if (best.leaves < 0) return false;
    std::erase(groups_.sequences[from], best.leaves);
    groups_.sequences[best.to].push_back(best.leaves);
    if (best.comes >= 0) {
      std::erase(groups_.sequences[best.to], best.comes);
      groups_.sequences[from].push_back(best.comes);
    }
    loads_[from] = best.of_slowest;
    loads_[best.to] = best.of_other;
    return true;
  }

  FlexSpGroups groups_;
  std::span<const int64_t> lengths_;
  const FlexSpCost& cost_;
  std::vector<Load> loads_;
};

// Searches from these groups while splitting and joining groups pays.
std::optional<FlexSpGroups> search_from(std::optional<FlexSpGroups> best, std::span<const int64_t> lengths,
                                        const FlexSpCost& cost) {
  for (bool better = best.has_value(); better;) {
    std::optional<FlexSpGroups> nearest;
    for (const std::vector<int>& sizes : neighbours(best->sizes, cost.largest()))
      take_faster(nearest, assign_to_groups(lengths, sizes, cost));
    if (nearest) nearest = Assignment(*std::move(nearest), lengths, cost).improved();
    better = take_faster(best, std::move(nearest));
  }
  return best;
}

std::optional<Batch> batch_of(std::span<const int64_t> lengths, const std::vector<int>& order, int count,
                              const FlexSpCost& cost) {
  std::vector<int64_t> descending;
  for (const int s : order) descending.push_back(lengths[static_cast<size_t>(s)]);
  Batch batch;
  size_t begin = 0;
  for (const size_t end : cut_evenly(descending, count)) {
    const std::span<const int64_t> own = std::span(descending).subspan(begin, end - begin);
    std::optional<FlexSpGroups> groups = best_groups(own, cost);
    if (!groups) return std::nullopt;
    batch.time_ns += cost.micro_batch_ns(*groups, own);
    batch.micro_batches.push_back({{order.begin() + static_cast<std::ptrdiff_t>(begin),
                                    order.begin() + static_cast<std::ptrdiff_t>(end)},
                                   std::move(*groups)});
    begin = end;
  }
  return batch;
}

// The blaster's batches, by number of micro-batches. Empty if the batch does not fit.
std::vector<Batch> all_batches(std::span<const int64_t> lengths, const FlexSpCost& cost) {
  const std::vector<int> order = by_descending_length(lengths);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t capacity = std::max<int64_t>(1, cost.capacity_tokens(1) * cost.ranks());
  const auto fewest = static_cast<int>((tokens + capacity - 1) / capacity);
  std::vector<Batch> batches;
  // Runs with even token sums may need more micro-batches than the sum of tokens does.
  for (int count = std::max(1, fewest); count <= fewest + kMoreMicroBatches || batches.empty(); ++count) {
    if (count > static_cast<int>(lengths.size())) break;
    if (std::optional<Batch> next = batch_of(lengths, order, count, cost))
      batches.push_back(*std::move(next));
  }
  return batches;
}

void improve_groups(std::span<const int64_t> lengths, const FlexSpCost& cost, const ImproveGroups& improve,
                    Batch& batch) {
  for (LanePart& micro : batch.micro_batches) {
    std::vector<int64_t> own;
    for (const int s : micro.sequences) own.push_back(lengths[static_cast<size_t>(s)]);
    FlexSpGroups groups = improve(own, cost, micro.groups);
    const int64_t gained_ns = cost.micro_batch_ns(micro.groups, own) - cost.micro_batch_ns(groups, own);
    if (gained_ns <= 0) continue;
    micro.groups = std::move(groups);
    batch.time_ns -= gained_ns;
  }
}

// Nullopt if the batch does not fit.
std::optional<Batch> best_batch(std::span<const int64_t> lengths, const FlexSpCost& cost,
                                const ImproveGroups& improve) {
  std::vector<Batch> batches = all_batches(lengths, cost);
  if (batches.empty()) return std::nullopt;
  if (improve) {
    const int64_t least_ns = std::ranges::min(batches, {}, &Batch::time_ns).time_ns;
    std::erase_if(batches, [&](const Batch& batch) { return batch.time_ns > least_ns + least_ns / 100; });
    for (Batch& batch : batches) improve_groups(lengths, cost, improve, batch);
  }
  return *std::ranges::min_element(batches, {}, &Batch::time_ns);
}

}  // namespace

FlexSpCost::FlexSpCost(const GroupProgram& program, const cost::CostModel& cost, int world_size)
    : program_(program),
      cost_(cost),
      times_(cost.stage_times(program.scheme, 0)),
      exchanges_(program.scheme, cost),
      share_(cost, program.scheme, strategy::fsdp_runs(program.scheme, cost.options().topology)) {
  SLUICE_ASSERT(program.scheme.tp == 1 && program.scheme.pp == 1, "groups of whole stages");
  const int largest = most_group_lanes(program, cost, program.scheme.cp);
  for (int size = 1; size <= largest; size *= 2) {
    sizes_.push_back({.capacity = published::capacity_tokens(program, size, cost, world_size),
                      .place = cost::LanePlace::aligned(size, program.scheme.tp, cost.options().topology)});
  }
}

const FlexSpCost::Size& FlexSpCost::at(int size) const {
  return sizes_[static_cast<size_t>(std::bit_width(static_cast<unsigned>(size)) - 1)];
}

int64_t FlexSpCost::longest() const {
  int64_t longest = 0;
  for (int size = 1; size <= largest(); size *= 2)
    longest = std::max(longest, size == 1 ? capacity_tokens(1) : capacity_tokens(size) / 2 * 2 * size);
  return longest;
}

int64_t FlexSpCost::time_ns(const cost::Work& work, int size) const {
  const cost::Work own = share_of(work, size);
  const int64_t exposed_ns = size == 1 ? 0 : exchanges_.exposed(0, own, at(size).place, size).both_ns();
  return times_.of_work(own) + exposed_ns;
}

int64_t FlexSpCost::micro_batch_ns(const FlexSpGroups& groups, std::span<const int64_t> lengths) const {
  if (program_.scheme.fsdp == 1) return groups.time_ns;
  cost::Work slowest;
  int64_t slowest_ns = -1;
  int lanes = 1;
  for (size_t g = 0; g < groups.sizes.size(); ++g) {
    cost::Work work;
    for (const int s : groups.sequences[g]) work += work_of(lengths[static_cast<size_t>(s)]);
    const int64_t ns = time_ns(work, groups.sizes[g]);
    if (ns <= slowest_ns) continue;
    slowest_ns = ns;
    slowest = share_of(work, groups.sizes[g]);
    lanes = groups.sizes[g];
  }
  const base::Interval run = cost_.stage_run(program_.scheme, 0);
  const cost::Exchanges::Exposed exposed =
      lanes == 1 ? cost::Exchanges::Exposed{} : exchanges_.exposed(0, slowest, at(lanes).place, lanes);
  const auto cell_ns = [&](cost::CellKind kind, int64_t exposed_ns) {
    const int64_t compute_ns = cost_.cell_ns(program_.scheme, kind, run, slowest) + exposed_ns;
    return share_.cell_ns(kind, run, slowest, compute_ns);
  };
  return cell_ns(cost::CellKind::kForward, exposed.forward_ns) +
         cell_ns(cost::CellKind::kBackward, exposed.backward_ns);
}

std::optional<FlexSpGroups> assign_to_groups(std::span<const int64_t> lengths, std::span<const int> sizes,
                                             const FlexSpCost& cost) {
  FlexSpGroups groups{.sizes = {sizes.begin(), sizes.end()},
                      .sequences = std::vector<std::vector<int>>(sizes.size())};
  std::vector<cost::Work> loads(sizes.size());
  std::vector<int64_t> tokens(sizes.size(), 0);  // on one of each group's ranks
  for (const int s : by_descending_length(lengths)) {
    const int64_t length = lengths[static_cast<size_t>(s)];
    int64_t least_ns = std::numeric_limits<int64_t>::max();
    size_t to = sizes.size();
    for (size_t g = 0; g < sizes.size(); ++g) {
      if (tokens[g] + tokens_on_lane(length, sizes[g]) > cost.capacity_tokens(sizes[g])) continue;
      cost::Work load = loads[g];
      const int64_t ns = cost.time_ns(load += cost.work_of(length), sizes[g]);
      if (ns >= least_ns) continue;
      least_ns = ns;
      to = g;
    }
    if (to == sizes.size()) return std::nullopt;
    loads[to] += cost.work_of(length);
    tokens[to] += tokens_on_lane(length, sizes[to]);
    groups.sequences[to].push_back(s);
  }
  for (size_t g = 0; g < sizes.size(); ++g) {
    if (!groups.sequences[g].empty())
      groups.time_ns = std::max(groups.time_ns, cost.time_ns(loads[g], sizes[g]));
  }
  return groups;
}

std::optional<FlexSpGroups> best_groups(std::span<const int64_t> lengths, const FlexSpCost& cost) {
  constexpr size_t kStarts = 2;
  std::vector<FlexSpGroups> starts;
  for (int size = 1; size <= cost.largest(); size *= 2) {
    const std::vector<int> sizes(static_cast<size_t>(cost.ranks() / size), size);
    if (std::optional<FlexSpGroups> alike = assign_to_groups(lengths, sizes, cost))
      starts.push_back(*std::move(alike));
  }
  std::ranges::stable_sort(starts, {}, &FlexSpGroups::time_ns);
  if (starts.size() > kStarts) starts.resize(kStarts);
  std::optional<FlexSpGroups> best;
  for (FlexSpGroups& start : starts)
    take_faster(best, search_from(Assignment(std::move(start), lengths, cost).improved(), lengths, cost));
  return best;
}

std::optional<FlexSpGroups> groups_near(std::span<const int64_t> lengths, std::span<const int> sizes,
                                        const FlexSpCost& cost) {
  std::optional<FlexSpGroups> start = assign_to_groups(lengths, sizes, cost);
  if (!start) return std::nullopt;
  return search_from(Assignment(*std::move(start), lengths, cost).improved(), lengths, cost);
}

std::vector<size_t> cut_evenly(std::span<const int64_t> lengths, int count) {
  const auto ends_with = [&](int64_t most) {
    std::vector<size_t> ends;
    int64_t sum = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (i > 0 && sum + lengths[i] > most) {
        ends.push_back(i);
        sum = 0;
      }
      sum += lengths[i];
    }
    if (!lengths.empty()) ends.push_back(lengths.size());
    return ends;
  };
  int64_t low = lengths.empty() ? 0 : *std::ranges::max_element(lengths);
  int64_t high = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (static_cast<int>(ends_with(middle).size()) <= count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return ends_with(low);
}

strategy::StepPlan flex_sp_plan(const GroupProgram& program, std::span<const int64_t> lengths,
                                const cost::CostModel& cost, int world_size, const ImproveGroups& improve) {
  const FlexSpCost groups_cost(program, cost, world_size);
  const std::optional<Batch> batch = best_batch(lengths, groups_cost, improve);
  if (!batch) {
    const int64_t length = lengths.empty() ? 0 : *std::ranges::max_element(lengths);
    throw base::InfeasibleError(base::text("a sequence of ", length,
                                           " tokens fits no Ulysses group of up to ", groups_cost.largest(),
                                           " ranks: they hold ", groups_cost.longest(), " tokens"));
  }
  std::vector<std::vector<LaneGroup>> micro_batches;
  for (const LanePart& micro : batch->micro_batches) {
    std::vector<LaneGroup>& groups = micro_batches.emplace_back();
    for (size_t g = 0; g < micro.groups.sizes.size(); ++g) {
      groups.push_back({.lanes = micro.groups.sizes[g], .sequences = {}});
      for (const int s : micro.groups.sequences[g])
        groups.back().sequences.push_back(micro.sequences[static_cast<size_t>(s)]);
    }
  }
  return lane_groups_plan(program, micro_batches, lengths, cost, world_size);
}

}  // namespace sluice::published

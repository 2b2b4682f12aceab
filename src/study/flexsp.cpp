#include "study/flexsp.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "schedule/pipeline_schedule.h"
#include "study/baseline_cost.h"

namespace sluice::study {
namespace {

constexpr int kMoreMicroBatches = 4;
constexpr size_t kSampleStride = 8;  // of the sample batches that stage of ZeRO and recompute are chosen by

// Sizes that one step of the search leads to: one group split in two, or two equal ones joined.
std::vector<std::vector<int>> neighbours(const std::vector<int>& sizes, int largest) {
  std::set<std::vector<int>> found;
  for (size_t g = 0; g < sizes.size(); ++g) {
    if (g > 0 && sizes[g] == sizes[g - 1]) continue;
    std::vector<int> next = sizes;
    if (sizes[g] > 1) {
      next[g] /= 2;
      next.push_back(next[g]);
      std::ranges::sort(next, std::greater());
      found.insert(next);
    }
    if (g + 1 < sizes.size() && sizes[g + 1] == sizes[g] && 2 * sizes[g] <= largest) {
      next = sizes;
      next[g] *= 2;
      next.erase(next.begin() + static_cast<std::ptrdiff_t>(g) + 1);
      std::ranges::sort(next, std::greater());
      found.insert(next);
    }
  }
  return {found.begin(), found.end()};
}

// The steps downhill from `sizes`, as far as they go.
std::optional<UlyssesGroups> descend(std::optional<UlyssesGroups> best, std::span<const int64_t> lengths,
                                     int largest, const UlyssesGroupCost& cost) {
  for (bool better = best.has_value(); better;) {
    better = false;
    std::optional<UlyssesGroups> nearest;
    for (const std::vector<int>& sizes : neighbours(best->sizes, largest)) {
      std::optional<UlyssesGroups> next = assign_to_groups(lengths, sizes, cost);
      if (next && (!nearest || next->time_ns < nearest->time_ns)) nearest = std::move(next);
    }
    better = nearest && nearest->time_ns < best->time_ns;
    if (better) best = std::move(nearest);
  }
  return best;
}

// Of one rank of a group.
cost::Work share_of(const cost::Work& work, int size) {
  return {(work.tokens + size - 1) / size, (work.squares + size - 1) / size};
}

// One micro-batch as a step plan of its own. `sequences`: those of the micro-batch.
strategy::StepPlan plan_of(const UlyssesGroups& groups, std::vector<strategy::Sequence> sequences,
                           const cost::CostModel& cost, int world_size) {
  std::vector<std::string> terms;
  for (const int size : groups.sizes) terms.push_back(base::text("<1,1,", size, ">"));
  const strategy::Strategy strategy = strategy::parse_strategy(base::join(terms, " + "), world_size);
  strategy::StepPlan plan{.sequences = std::move(sequences)};
  for (size_t g = 0; g < groups.sizes.size(); ++g) {
    const strategy::Pipeline& pipeline = strategy.pipelines[g];
    strategy::PipelinePlan own{.pipeline = pipeline,
                               .max_len_tokens = cost.max_len_tokens(pipeline.scheme, world_size),
                               .units = {}};
    if (!groups.sequences[g].empty()) {
      strategy::Unit& unit =
          own.units.emplace_back(strategy::Unit{.lanes = groups.sizes[g], .sequences = {}});
      for (const int s : groups.sequences[g])
        unit.sequences.push_back({s, plan.sequences[static_cast<size_t>(s)].length_tokens});
    }
    const schedule::PipelineLoad load = schedule::pipeline_load(own, cost, world_size);
    plan.estimated_ns = std::max(plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
    plan.pipelines.push_back(std::move(own));
  }
  return plan;
}

// A batch as it is run: micro-batches by descending length.
struct Micro {
  std::vector<int> sequences;  // indices into the batch
  UlyssesGroups groups;
};
struct Batch {
  std::vector<Micro> micro_batches;
  int64_t time_ns = 0;
};

class FlexSp : public System {
 public:
  FlexSp(const SystemInputs& inputs, const UlyssesOptions& ulysses)
      : ulysses_(ulysses),
        cost_(ulysses_cost(inputs.cost, ulysses)),
        groups_(cost_, inputs.world_size),
        largest_(most_ulysses_ranks(inputs.cost, inputs.world_size)),
        zero_(zero_times(inputs.cost, ulysses)) {}

  std::string configuration() const override {
    return base::text("groups of up to ", largest_, ulysses_.recompute ? " + AC" : "", ", ZeRO-",
                      static_cast<int>(ulysses_.zero));
  }
  const cost::CostModel& cost() const override { return cost_; }
  bool holds(int64_t length) const { return groups_.longest(largest_) >= length; }

  // Nothing when the batch does not fit.
  std::optional<Batch> best_batch(const std::vector<int64_t>& lengths) const {
    std::vector<int> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
    });
    const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const int64_t capacity = groups_.capacity_tokens() * groups_.world_size();
    const auto fewest = static_cast<int>((tokens + capacity - 1) / std::max<int64_t>(capacity, 1));
    std::optional<Batch> best;
    // Runs of even token sums may not fit as few as the tokens alone would.
    for (int count = std::max(1, fewest); count <= fewest + kMoreMicroBatches || !best; ++count) {
      if (count > static_cast<int>(lengths.size())) break;
      std::optional<Batch> next = batch_of(lengths, order, count);
      if (next && (!best || next->time_ns < best->time_ns)) best = std::move(next);
    }
    return best;
  }

  SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    const std::optional<Batch> batch = best_batch(lengths_of(sequences));
    if (!batch) {
      throw base::InfeasibleError(base::text("step ", number, " has a sequence that no Ulysses group of ",
                                             largest_, " ranks holds: it holds ", groups_.longest(largest_),
                                             " tokens"));
    }
    SystemStep step;
    for (size_t m = 0; m < batch->micro_batches.size(); ++m) {
      const Micro& micro = batch->micro_batches[m];
      if (m > 0) {
        step.before_ns += step.plan.estimated_ns;
        step.earlier.push_back(std::move(step.plan));
      }
      std::vector<strategy::Sequence> own;
      for (const int s : micro.sequences) own.push_back(sequences[static_cast<size_t>(s)]);
      step.plan = plan_of(micro.groups, std::move(own), cost_, groups_.world_size());
      step.before_ns += with_zero(step.plan.estimated_ns, micro.groups, m) - step.plan.estimated_ns;
    }
    step.plan.step = number;
    return step;
  }

 private:
  std::optional<Batch> batch_of(const std::vector<int64_t>& lengths, const std::vector<int>& order,
                                int count) const {
    std::vector<int64_t> descending;
    for (const int s : order) descending.push_back(lengths[static_cast<size_t>(s)]);
    Batch batch;
    size_t begin = 0;
    for (const size_t end : cut_evenly(descending, count)) {
      const std::span<const int64_t> own = std::span(descending).subspan(begin, end - begin);
      std::optional<UlyssesGroups> groups = best_groups(own, largest_, groups_);
      if (!groups) return std::nullopt;
      batch.time_ns += with_zero(groups->time_ns, *groups, batch.micro_batches.size());
      batch.micro_batches.push_back({{order.begin() + static_cast<std::ptrdiff_t>(begin),
                                      order.begin() + static_cast<std::ptrdiff_t>(end)},
                                     std::move(*groups)});
      begin = end;
    }
    return batch;
  }

  // A micro-batch that takes `busy_ns` by itself, where it waits for ZeRO's collectives.
  int64_t with_zero(int64_t busy_ns, const UlyssesGroups& groups, size_t micro_batch) const {
    const int64_t zero_ns = micro_batch == 0 ? zero_.first_ns : zero_.later_ns;
    return zero_ns == 0 ? busy_ns : std::max(busy_ns, groups.all_to_all_ns + zero_ns);
  }

  UlyssesOptions ulysses_;
  cost::CostModel cost_;
  UlyssesGroupCost groups_;
  int largest_;
  ZeroTimes zero_;
};

}  // namespace

UlyssesGroupCost::UlyssesGroupCost(const cost::CostModel& cost, int world_size)
    : world_size_(world_size), capacity_tokens_(cost.max_len_tokens({}, world_size)) {
  for (int size = 1; size <= world_size; size *= 2) {
    const strategy::Scheme scheme{.cp = size};
    const base::Interval part = cost.stage_run(scheme, 0);
    const bool in_node = size <= cost.options().gpus_per_node;
    sizes_.push_back({.times = cost.stage_times(scheme, 0),
                      .forward = cost.ring_times(scheme, cost::CellKind::kForward, part, in_node),
                      .backward = cost.ring_times(scheme, cost::CellKind::kBackwardInput, part, in_node)});
  }
}

int64_t UlyssesGroupCost::time_ns(const cost::Work& work, int size) const {
  const Size& of = sizes_[static_cast<size_t>(std::bit_width(static_cast<unsigned>(size)) - 1)];
  return of.times.of_work(share_of(work, size)) + all_to_all_ns(work, size);
}

int64_t UlyssesGroupCost::all_to_all_ns(const cost::Work& work, int size) const {
  const Size& of = sizes_[static_cast<size_t>(std::bit_width(static_cast<unsigned>(size)) - 1)];
  const cost::Work lane = share_of(work, size);
  return of.forward.exposed_ns(lane, size) + of.backward.exposed_ns(lane, size);
}

std::optional<UlyssesGroups> assign_to_groups(std::span<const int64_t> lengths, std::span<const int> sizes,
                                              const UlyssesGroupCost& cost) {
  UlyssesGroups groups{.sizes = {sizes.begin(), sizes.end()},
                       .sequences = std::vector<std::vector<int>>(sizes.size())};
  std::vector<cost::Work> loads(sizes.size());
  std::vector<int64_t> lane_tokens(sizes.size(), 0);
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  for (const int s : order) {
    const int64_t length = lengths[static_cast<size_t>(s)];
    int64_t least_ns = std::numeric_limits<int64_t>::max();
    size_t to = sizes.size();
    for (size_t g = 0; g < sizes.size(); ++g) {
      // A lane holds two of the even chunks.
      const int64_t own = sizes[g] == 1 ? length : 2 * ((length + 2 * sizes[g] - 1) / (2 * sizes[g]));
      if (lane_tokens[g] + own > cost.capacity_tokens()) continue;
      cost::Work load = loads[g];
      load += {length, cost::Wide{length} * length};
      const int64_t ns = cost.time_ns(load, sizes[g]);
      if (ns >= least_ns) continue;
      least_ns = ns;
      to = g;
    }
    if (to == sizes.size()) return std::nullopt;
    loads[to] += {length, cost::Wide{length} * length};
    lane_tokens[to] += sizes[to] == 1 ? length : 2 * ((length + 2 * sizes[to] - 1) / (2 * sizes[to]));
    groups.sequences[to].push_back(s);
  }
  for (size_t g = 0; g < sizes.size(); ++g) {
    if (groups.sequences[g].empty()) continue;
    groups.time_ns = std::max(groups.time_ns, cost.time_ns(loads[g], sizes[g]));
    groups.all_to_all_ns = std::max(groups.all_to_all_ns, cost.all_to_all_ns(loads[g], sizes[g]));
  }
  return groups;
}

std::optional<UlyssesGroups> best_groups(std::span<const int64_t> lengths, int largest_group,
                                         const UlyssesGroupCost& cost) {
  std::optional<UlyssesGroups> best;
  for (int size = 1; size <= largest_group; size *= 2) {
    const std::vector<int> sizes(static_cast<size_t>(cost.world_size() / size), size);
    std::optional<UlyssesGroups> next = assign_to_groups(lengths, sizes, cost);
    if (next && (!best || next->time_ns < best->time_ns)) best = std::move(next);
  }
  return descend(std::move(best), lengths, largest_group, cost);
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

std::unique_ptr<System> make_flexsp(const SystemInputs& inputs) {
  std::unique_ptr<FlexSp> best;
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  for (const UlyssesOptions& ulysses : ulysses_choices(inputs.world_size)) {
    auto next = std::make_unique<FlexSp>(inputs, ulysses);
    if (!next->holds(inputs.context_length)) continue;
    int64_t total_ns = 0;
    for (size_t b = 0; b < inputs.sample_batches.size(); b += kSampleStride) {
      total_ns += next->best_batch(inputs.sample_batches[b]).value().time_ns;
    }
    if (best && total_ns >= least_ns) continue;
    best = std::move(next);
    least_ns = total_ns;
  }
  if (!best) {
    throw base::InfeasibleError(base::text("no Ulysses group on ", inputs.world_size,
                                           " ranks holds context_length ", inputs.context_length,
                                           ", with ZeRO-3 and recompute: shorten it"));
  }
  return best;
}

}  // namespace sluice::study

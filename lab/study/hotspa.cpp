#include "study/hotspa.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "link/layout.h"
#include "plan/mix.h"
#include "published/static_strategy.h"
#include "study/rival_traits.h"

namespace sluice::study {
namespace {

constexpr int64_t kFirstEnd = 4096;  // tokens
constexpr int64_t kEndFactor = 4;
constexpr size_t kMostEnds = 4;
constexpr int kHalvings = 3;  // halvings of the longest micro-batch

struct Phase : HotSpaPhase {
  strategy::Strategy strategy;
};

Phase phase_of(int64_t longest, const published::StaticStrategy& choice, int world_size) {
  const std::string name = base::text(choice.pipelines, "x", to_text(choice.scheme));
  return {{longest, choice}, strategy::parse_strategy(name, world_size)};
}

// Lengths above `shortest`, up to `longest`.
std::vector<int64_t> between(const std::vector<int64_t>& lengths, int64_t shortest, int64_t longest) {
  std::vector<int64_t> inside;
  for (const int64_t length : lengths) {
    if (length > shortest && length <= longest) inside.push_back(length);
  }
  return inside;
}

// Caches switch_ns for each pair of strategies.
class SwitchTimes {
 public:
  SwitchTimes(const cost::CostModel& cost, int world_size)
      : cost_(&cost),
        table_(model::parameter_table(cost.options().model, cost.program())),
        world_size_(world_size) {}

  int64_t ns(const strategy::Strategy& from, const strategy::Strategy& to) {
    const auto [entry, is_new] = known_.try_emplace({to_text(from), to_text(to)}, 0);
    if (is_new) entry->second = switch_ns(table_, from, to, world_size_, *cost_);
    return entry->second;
  }

 private:
  const cost::CostModel* cost_;
  model::ParameterTable table_;
  int world_size_;
  std::map<std::pair<std::string, std::string>, int64_t> known_;
};

// Finds the phases: for each set of interval ends, a shortest path over schemes whose edge lengths are times
// of intervals and switches.
class PhaseSearch {
 public:
  PhaseSearch(const SystemInputs& inputs, const cost::CostModel& cost, SwitchTimes& switches)
      : inputs_(inputs),
        cost_(cost),
        switches_(switches),
        schemes_(plan::usable_schemes(cost, inputs.world_size, 1)) {
    for (int64_t end = kFirstEnd; end < inputs.context_length && ends_.size() + 1 < kMostEnds;
         end *= kEndFactor) {
      ends_.push_back(end);
    }
    ends_.push_back(inputs.context_length);
  }

  // Longest first.
  std::vector<Phase> best() {
    std::optional<Path> best;
    const size_t inner = ends_.size() - 1;
    for (size_t chosen = 0; chosen < size_t{1} << inner; ++chosen) {
      std::vector<int64_t> ends;
      for (size_t e = 0; e < inner; ++e) {
        if ((chosen >> e & 1) != 0) ends.push_back(ends_[e]);
      }
      ends.push_back(ends_.back());
      std::optional<Path> next = best_path(ends);
      if (next && (!best || next->total_ns < best->total_ns)) best = std::move(next);
    }
    if (!best) fail();
    std::ranges::reverse(best->phases);
    return best->phases;
  }

 private:
  struct Path {
    int64_t total_ns = 0;
    std::vector<Phase> phases;  // shortest first
  };

  // The best path through the intervals that end at `ends`, by scheme of the last interval.
  std::optional<Path> best_path(const std::vector<int64_t>& ends) {
    std::vector<std::optional<Path>> by_scheme(schemes_.size());
    int64_t shortest = 0;
    for (const int64_t end : ends) {
      std::vector<std::optional<Path>> longer(schemes_.size());
      for (size_t k = 0; k < schemes_.size(); ++k) {
        const std::optional<Phase> phase = best_phase(k, shortest, end);
        if (phase) longer[k] = extended(by_scheme, *phase, shortest == 0);
      }
      by_scheme = std::move(longer);
      shortest = end;
    }
    std::optional<Path> best;
    for (std::optional<Path>& path : by_scheme) {
      if (path && (!best || path->total_ns < best->total_ns)) best = std::move(path);
    }
    return best;
  }

  std::optional<Path> extended(const std::vector<std::optional<Path>>& paths, const Phase& phase,
                               bool first) {
    const int64_t own_ns = phase.choice.mean_ns;
    if (first) return Path{own_ns, {phase}};
    std::optional<Path> best;
    for (const std::optional<Path>& path : paths) {
      if (!path) continue;
      const int64_t moved_ns = switches_.ns(phase.strategy, path->phases.back().strategy);
      const int64_t total_ns = path->total_ns + own_ns + moved_ns;
      if (best && total_ns >= best->total_ns) continue;
      best = Path{total_ns, path->phases};
    }
    if (best) best->phases.push_back(phase);
    return best;
  }

  // Scheme `k` for an interval, with its best micro-batches; nullopt if it does not hold the interval.
  std::optional<Phase> best_phase(size_t k, int64_t shortest, int64_t longest) {
    const auto key = std::pair(k, std::pair(shortest, longest));
    const auto known = phases_.find(key);
    if (known != phases_.end()) return known->second;
    std::optional<Phase>& phase = phases_[key];
    const plan::SchemeCost& scheme = schemes_[k];
    if (scheme.max_len_tokens() < longest) return phase;
    std::vector<int64_t> sizes = {longest};
    for (int halved = 0; halved <= kHalvings; ++halved) sizes.push_back(scheme.max_len_tokens() >> halved);
    for (const int64_t tokens : sizes) {
      published::StaticStrategy choice{.scheme = scheme.scheme(),
                                       .pipelines = inputs_.world_size / scheme.scheme().ranks(),
                                       .micro_batch_tokens = std::max<int64_t>(tokens, 1),
                                       .dealing = published::Dealing::kTurns};
      choice.mean_ns = mean_ns(choice, shortest, longest);
      if (!phase || choice.mean_ns < phase->choice.mean_ns) {
        phase = phase_of(longest, choice, inputs_.world_size);
      }
    }
    return phase;
  }

  int64_t mean_ns(const published::StaticStrategy& choice, int64_t shortest, int64_t longest) const {
    int64_t total_ns = 0;
    for (const std::vector<int64_t>& batch : inputs_.sample_batches) {
      const std::vector<int64_t> inside = between(batch, shortest, longest);
      if (inside.empty()) continue;
      total_ns += published::static_estimate_ns(choice, inside, cost_, inputs_.world_size);
    }
    return total_ns / static_cast<int64_t>(std::max<size_t>(inputs_.sample_batches.size(), 1));
  }

  [[noreturn]] void fail() const {
    int64_t longest = 0;
    for (const plan::SchemeCost& scheme : schemes_) longest = std::max(longest, scheme.max_len_tokens());
    throw base::InfeasibleError(base::text("no scheme without lanes on ", inputs_.world_size,
                                           " ranks holds context_length ", inputs_.context_length,
                                           ": the longest that fits is ", longest, " tokens"));
  }

  const SystemInputs& inputs_;
  const cost::CostModel& cost_;
  SwitchTimes& switches_;
  std::vector<plan::SchemeCost> schemes_;
  std::vector<int64_t> ends_;  // intervals' ends, ascending
  std::map<std::pair<size_t, std::pair<int64_t, int64_t>>, std::optional<Phase>> phases_;
};

class HotSpa : public System {
 public:
  explicit HotSpa(const SystemInputs& inputs)
      : cost_(one_backward_cell(inputs.cost)),
        world_size_(inputs.world_size),
        switches_(cost_, inputs.world_size),
        phases_(PhaseSearch(inputs, cost_, switches_).best()) {}
  HotSpa(const SystemInputs& inputs, const std::vector<HotSpaPhase>& phases)
      : cost_(one_backward_cell(inputs.cost)),
        world_size_(inputs.world_size),
        switches_(cost_, inputs.world_size) {
    for (const HotSpaPhase& phase : phases) {
      phases_.push_back(phase_of(phase.longest, phase.choice, world_size_));
    }
  }

  std::string configuration() const override {
    std::vector<std::string> names;
    for (const Phase& phase : phases_) names.push_back(to_text(phase.choice));
    return base::join(names, ", ");
  }
  const cost::CostModel& cost() const override { return cost_; }

  SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    SystemStep step;
    const Phase* before = nullptr;
    for (size_t p = 0; p < phases_.size(); ++p) {
      const std::vector<strategy::Sequence> own = sequences_of(p, sequences);
      if (own.empty()) continue;
      if (before != nullptr) {
        const int64_t moved_ns = switches_.ns(before->strategy, phases_[p].strategy);
        step.before_ns += step.plan.estimated_ns + moved_ns;
        step.switch_ns += moved_ns;
        step.earlier.push_back(std::move(step.plan));
      }
      step.plan = published::static_plan(phases_[p].choice, lengths_of(own), cost_, world_size_);
      step.plan.sequences = own;
      before = &phases_[p];
    }
    step.plan.step = number;
    return step;
  }

 private:
  std::vector<strategy::Sequence> sequences_of(size_t phase,
                                               const std::vector<strategy::Sequence>& sequences) const {
    const int64_t shorter = phase + 1 < phases_.size() ? phases_[phase + 1].longest : 0;
    std::vector<strategy::Sequence> own;
    for (const strategy::Sequence& sequence : sequences) {
      const int64_t length = sequence.length_tokens;
      if (length > phases_.front().longest) fail(sequence);
      if (length > shorter && length <= phases_[phase].longest) own.push_back(sequence);
    }
    return own;
  }

  [[noreturn]] void fail(const strategy::Sequence& sequence) const {
    throw base::InfeasibleError(base::text("document ", sequence.document, " has a sequence of ",
                                           sequence.length_tokens, " tokens but HotSPa was set up for ",
                                           phases_.front().longest, ": raise context_length"));
  }

  cost::CostModel cost_;
  int world_size_;
  SwitchTimes switches_;
  std::vector<Phase> phases_;  // longest first
};

// The parts of a bucket that the ranks of a node hold together, by node.
std::vector<base::IntervalSet> node_shards(const link::ComputeLayout& layout, int bucket,
                                           const strategy::Topology& topology) {
  std::vector<base::IntervalSet> nodes(static_cast<size_t>(topology.nodes_of(layout.world_size())));
  for (const int rank : layout.holders(bucket)) {
    for (const base::Interval part : layout.shard(bucket, rank).intervals()) {
      nodes[static_cast<size_t>(topology.node_of(rank))].add(part);
    }
  }
  return nodes;
}

// Elements that cross links.
struct SwitchVolume {
  std::vector<int64_t> received;   // by rank, from its own node
  std::vector<int64_t> taken_in;   // by node, from others
  std::vector<int64_t> given_out;  // by node, to others

  SwitchVolume(int ranks, int nodes)
      : received(static_cast<size_t>(ranks)),
        taken_in(static_cast<size_t>(nodes)),
        given_out(static_cast<size_t>(nodes)) {}

  void add(const link::ComputeLayout& from, const link::ComputeLayout& to, int bucket,
           const strategy::Topology& topology) {
    const std::vector<base::IntervalSet> held = node_shards(from, bucket, topology);
    const std::vector<base::IntervalSet> needed = node_shards(to, bucket, topology);
    for (const int rank : to.holders(bucket)) {
      const base::IntervalSet& shard = to.shard(bucket, rank);
      received[static_cast<size_t>(rank)] += shard.size() - shard.intersect(from.shard(bucket, rank)).size();
    }
    int64_t moved = 0;
    for (size_t node = 0; node < needed.size(); ++node) {
      const int64_t missing = needed[node].size() - needed[node].intersect(held[node]).size();
      taken_in[node] += missing;
      moved += missing;
    }
    const auto holders = std::ranges::count_if(held, [](const auto& of) { return of.size() > 0; });
    for (size_t node = 0; node < held.size(); ++node) {
      if (held[node].size() > 0) given_out[node] += moved / holders;
    }
  }
};

}  // namespace

int64_t switch_ns(const model::ParameterTable& table, const strategy::Strategy& from,
                  const strategy::Strategy& to, int world_size, const cost::CostModel& cost) {
  if (from == to) return 0;
  const cost::CostModel::Options& options = cost.options();
  const strategy::Topology& topology = options.topology;
  const link::ComputeLayout old_layout(table, from, world_size);
  const link::ComputeLayout new_layout(table, to, world_size);
  SwitchVolume volume(world_size, topology.nodes_of(world_size));
  for (const model::Bucket& bucket : table.buckets)
    volume.add(old_layout, new_layout, bucket.index, topology);
  const int64_t bytes = options.memory.element_bytes + options.memory.accumulator_bytes;
  const int64_t nics = std::max(1, std::min(topology.node_ranks(), world_size) / topology.nic_ranks());
  const int64_t near = std::ranges::max(volume.received) * bytes;
  const int64_t far =
      std::max(std::ranges::max(volume.taken_in), std::ranges::max(volume.given_out)) * bytes / nics;
  return (near > 0 ? options.intra.of_bytes(near) : 0) + (far > 0 ? options.inter.of_bytes(far) : 0);
}

std::unique_ptr<System> make_hotspa(const SystemInputs& inputs) { return std::make_unique<HotSpa>(inputs); }

std::unique_ptr<System> make_hotspa(const SystemInputs& inputs, const std::vector<HotSpaPhase>& phases) {
  return std::make_unique<HotSpa>(inputs, phases);
}

}  // namespace sluice::study

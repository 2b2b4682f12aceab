// A strategy is the pipelines of all ranks: S = sum of d_i x P_i. Ranks may be idle.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategy/expert_placement.h"
#include "strategy/low_precision_gemms.h"
#include "strategy/scheme.h"

namespace sluice::strategy {

// What a rank computes on, where ranks differ in that.
struct Device {
  int slowdown_percent = 100;  // what it takes for work that is priced at 100
  int64_t memory_bytes = 0;    // that a plan may use; 0: as priced
  std::shared_ptr<const LowPrecisionGemms> low_precision = nullptr;  // null: all products as the run computes

  bool operator==(const Device& other) const;
};

// The ranks that together hold one model replica.
struct Pipeline {
  Scheme scheme;
  std::vector<int> ranks;  // scheme.ranks() world ranks; see rank_of for the order
  Device device = {};      // of all of them
  // What its slowest rank takes for what takes others on such a device 100; cells wait for the slowest.
  int slowdown_percent = 100;
  std::shared_ptr<const ExpertPlacement> placement = nullptr;  // null: even parts of experts in their order

  // The rank of TP index `t`, lane and stage. TP ranks are neighbours, then lanes, then stages:
  // ranks[(stage·cp + lane)·tp + t].
  int rank_of(int stage, int lane, int t) const {
    return ranks[static_cast<size_t>((stage * scheme.cp + lane) * scheme.tp + t)];
  }
  // The tp ranks of one stage of one lane, ascending in TP index.
  std::vector<int> tp_group(int stage, int lane) const;
  // The ranks of TP index `t` on the lanes that share a lane's parameters, in the order of lanes.
  std::vector<int> fsdp_group(int stage, int lane, int t) const;
  // A lane's experts of a layer, ascending; none: its even part of them, or all where it divides none.
  std::span<const int> experts_of(int64_t layer, int lane) const;

  // What its cells take for work that is priced at 100.
  int priced_percent() const { return device.slowdown_percent * slowdown_percent / 100; }

  bool operator==(const Pipeline& other) const;
};

// Where a rank stands in its pipeline.
struct Place {
  int pipeline = 0;
  int stage = 0;
  int lane = 0;
  int t = 0;  // TP index
};

struct Strategy {
  std::vector<Pipeline> pipelines;

  int ranks() const;  // ranks in all pipelines together
  bool operator==(const Strategy&) const = default;
};

// "1x<4,2,1> + 2x<1,1,2>": runs of equal schemes are counted; rank lists are not printed.
std::string to_text(const Strategy& strategy);

// Parses "1x<4,2,1> + 2x<1,1,2>" ("1x" may be left out); ranks are assigned in that order from 0. InputError
// naming the text, the fault and, where it uses more than `world_size` ranks, both numbers.
Strategy parse_strategy(std::string_view text, int world_size);

// The same pipelines on ranks of these paces, by world rank; where there are none, of 100.
Strategy with_slowdowns(Strategy strategy, std::span<const int> pace_percent);

// The same on these devices, by world rank; where there are none, all alike. A pipeline counts as on the
// slowest of its ranks' and on the smallest.
Strategy on_devices(Strategy strategy, std::span<const Device> devices);

// The same with experts placed, where there is a placement for as many lanes as divide them.
Strategy with_placements(Strategy strategy, const ExpertPlacements& placements);

// By world rank: the rank's place, or pipeline = -1 for an idle rank.
std::vector<Place> places(const Strategy& strategy, int world_size);

// InputError unless ranks are distinct, within [0, world_size), and as many as each scheme needs, and every
// share divides its cp.
void validate(const Strategy& strategy, int world_size);

}  // namespace sluice::strategy

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

// The device of a rank, where a cluster's devices differ.
struct Device {
  int slowdown_percent = 100;  // duration of work that the cost model prices at 100
  int64_t memory_bytes = 0;    // usable by a plan; 0: as the cost model says
  std::shared_ptr<const LowPrecisionGemms> low_precision = nullptr;  // null: all products as the run computes

  bool operator==(const Device& other) const;
};

// The ranks that together hold one model replica.
struct Pipeline {
  Scheme scheme;
  std::vector<int> ranks;  // scheme.ranks() world ranks; see rank_of for the order
  Device device = {};      // the device of all of its ranks
  // Duration, on its slowest rank, of work that takes 100 on other devices of this kind; cells wait for it.
  int slowdown_percent = 100;
  std::shared_ptr<const ExpertPlacement> placement = nullptr;  // null: even parts of experts in their order

  // The rank of TP index `t`, lane and stage. TP ranks are neighbours, then lanes, then stages:
  // ranks[(stage·cp + lane)·tp + t].
  int rank_of(int stage, int lane, int t) const {
    return ranks[static_cast<size_t>((stage * scheme.cp + lane) * scheme.tp + t)];
  }
  // The tp ranks of one stage of one lane, ascending in TP index.
  std::vector<int> tp_group(int stage, int lane) const;
  // The ranks of TP index `t` on the lanes of this lane's share group, in the order of lanes.
  std::vector<int> fsdp_group(int stage, int lane, int t) const;
  // A lane's experts of a layer, ascending. Empty: its even part, or all experts with an EP degree of 1.
  // Layer -1, an MTP layer, always has even parts.
  std::span<const int> experts_of(int64_t layer, int lane) const;

  // The duration of its cells for work that the cost model prices at 100.
  int priced_percent() const { return device.slowdown_percent * slowdown_percent / 100; }

  bool operator==(const Pipeline& other) const;
};

// A rank's position in its pipeline.
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

// The same pipelines with ranks' slowdowns, in percent by world rank; empty: 100 for all.
Strategy with_slowdowns(Strategy strategy, std::span<const int> pace_percent);

// The same pipelines on these devices, by world rank; empty: all devices are alike. A pipeline counts as
// being on the slowest and the smallest of its ranks' devices.
Strategy on_devices(Strategy strategy, std::span<const Device> devices);

// The same pipelines; each gets the placement for its EP degree, or none if `placements` lacks that degree.
Strategy with_placements(Strategy strategy, const ExpertPlacements& placements);

// By world rank: the rank's place, or pipeline = -1 for an idle rank.
std::vector<Place> places(const Strategy& strategy, int world_size);

// InputError unless ranks are distinct and within [0, world_size), each scheme has as many as it needs, and
// every FSDP degree divides its CP degree.
void validate(const Strategy& strategy, int world_size);

}  // namespace sluice::strategy

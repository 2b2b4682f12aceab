// ByteScale's planners, as published, on one pipeline of many lanes (the hybrid data parallel dimension): the
// references that the lanes of plan/strip.h are compared with.
#pragma once

#include <cstdint>
#include <span>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "published/lane_offload.h"
#include "strategy/step_plan.h"

namespace sluice::published {

// kNaive: Algorithm 1. kDpBalance, kPpBalance: Algorithm 2, which takes sequences from the longest bucket
// first, or from all buckets in turns.
enum class ByteScaleRule : uint8_t { kNaive, kDpBalance, kPpBalance };

struct ByteScaleOptions {
  strategy::Scheme scheme;
  ByteScaleRule rule = ByteScaleRule::kNaive;
  OffloadRule offload = OffloadRule::kNone;  // REQUIRES otherwise: pp = 1
  int64_t lane_tokens = 0;                   // C; 0: what memory holds
  int64_t slack_ns = 0;                      // δ: lanes that end so much before the last are given work
  int buckets = 0;                           // 0: as many as micro-batches that the tokens fill on each lane
};

// Algorithm 1: a sequence of s >= C tokens takes ⌈s ÷ C⌉ lanes, or fewer where some of it is offloaded;
// shorter ones are packed best-fit into lane parts of C tokens, in the order of the batch. These
// micro-batches, the long ones first, fill rounds: each goes to the first round in which so many lanes are
// left.
//
// Algorithm 2: sequences are sorted and cut into buckets of about equal work. Again and again the lanes that
// end more than δ before the last (all of them when there is none, as at the beginning) get a lane part
// each: a long sequence takes the run of lanes that is free soonest, short ones fill a target up to C tokens.
// The paper leaves open which of the targets gets what: here the one that ends first gets the next.
//
// Timed by the schedule that will run, without copies. Infeasible where LaneReference lacks lanes.
base::Feasible<strategy::StepPlan> byte_scale_plan(const ByteScaleOptions& options,
                                                   std::span<const int64_t> lengths,
                                                   const cost::CostModel& cost, int world_size);

}  // namespace sluice::published

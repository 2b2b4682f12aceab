// ByteScale's planners, as published, on one pipeline of many lanes (its hybrid data parallel dimension):
// references for the lanes of plan/strip.h.
#pragma once

#include <cstdint>
#include <span>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "published/lane_offload.h"
#include "strategy/step_plan.h"

namespace sluice::published {

// kNaive: Algorithm 1. kDpBalance, kPpBalance: Algorithm 2, which takes sequences from the longest bucket
// first, or from all buckets round robin.
enum class ByteScaleRule : uint8_t { kNaive, kDpBalance, kPpBalance };

struct ByteScaleOptions {
  strategy::Scheme scheme;
  ByteScaleRule rule = ByteScaleRule::kNaive;
  OffloadRule offload = OffloadRule::kNone;  // REQUIRES if not kNone: pp = 1
  int64_t lane_tokens = 0;                   // C; 0: as many as memory holds
  int64_t slack_ns = 0;                      // δ: lanes that end more than this before the last get work
  int buckets = 0;                           // 0: ⌈tokens ÷ (lanes · C)⌉
};

// Algorithm 1: a sequence of s >= C tokens takes ⌈s ÷ C⌉ lanes, or fewer if part of it is offloaded. Shorter
// sequences are packed best-fit into lane parts of C tokens, in the order of the batch. These micro-batches,
// the long ones first, fill rounds: each goes to the first round with enough lanes left. All of its lanes are
// then taken in that round.
//
// Algorithm 2: sequences are sorted and cut into buckets of about equal work. The targets of an iteration are
// the lanes that end more than δ before the last, or all lanes if there is none. A long sequence takes the
// run of lanes that is free soonest; short ones fill a target up to C tokens. The paper leaves the order of
// targets open: here the target that ends first is next.
//
// Timed by the schedule that will run, without copies. Infeasible if there are fewer lanes than needed.
base::Feasible<strategy::StepPlan> byte_scale_plan(const ByteScaleOptions& options,
                                                   std::span<const int64_t> lengths,
                                                   const cost::CostModel& cost, int world_size);

}  // namespace sluice::published

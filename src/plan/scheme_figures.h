// A calibration's figures for one scheme, looked up once: stages' times and lanes' tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange.h"

namespace sluice::plan {

// The longest sequence on so many lanes, each of which holds two of the sequence's 2k even chunks.
int64_t longest_on(int lanes, int64_t lane_max_len_tokens);

struct SchemeFigures {
  struct Stage {
    cost::Quadratic forward;
    cost::Quadratic backward_input;
    cost::Quadratic backward_weight;
    cost::Quadratic all;
    // With several lanes.
    struct Rings {
      cost::RingTimes forward;
      cost::RingTimes backward;
    };
    Rings ring_in_node;
    Rings ring_between_nodes;  // on the fastest level
  };

  SchemeFigures(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size);

  const Stage& stage(int index) const { return stages[static_cast<size_t>(index)]; }
  // The work of one whole sequence, and of several.
  cost::Work work_of(int64_t length) const { return cost::Work::of_lane(length, length, 1, cost.window()); }
  cost::Work work_of(std::span<const int64_t> lengths) const {
    return cost::Work::of(lengths, cost.window());
  }
  // The fewest lanes that hold a sequence: one if it fits a lane, else as many as its 2k even chunks need.
  // REQUIRES: length <= max_len_tokens.
  int fewest_lanes(int64_t length) const;
  // A transfer between stages, on the faster of the links.
  int64_t transfer_ns(int64_t tokens) const;
  // The path of a micro-batch of `work` alone, without its lanes' exchange: forward and
  // input gradient on every stage, one after the other, and the weight gradient of stage 0.
  int64_t path_ns(const cost::Work& work) const;
  // The number of stage boundaries that gradients cross.
  int returns() const { return std::max(0, scheme.pp - 1 - cost.first_backward_stage(scheme)); }

  strategy::Scheme scheme;
  cost::CostModel cost;
  int64_t lane_max_len_tokens = 0;  // in a lane's micro-batch
  int64_t max_len_tokens = 0;       // in a sequence, over all lanes if necessary; 0: the model does not fit
  int64_t credit_tokens = 0;        // on one lane at a time
  // The least time of a pass beside computing, on one stage, if lanes share parameters; else 0.
  int64_t pass_ends_ns = 0;
  std::vector<Stage> stages;
  std::optional<cost::Exchanges> exchanges;  // none with one lane
};

}  // namespace sluice::plan

// The costs of one scheme that planning needs: how much its lanes hold, estimates of
// how long a sequence keeps the slowest stage busy, and proved lower bounds (floors()).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange.h"
#include "plan/scheme_figures.h"
#include "plan/scheme_floors.h"
#include "strategy/strategy.h"

namespace sluice::plan {

class SchemeCost {
 public:
  struct Halves {
    int64_t forward_ns = 0;
    int64_t backward_ns = 0;
    int64_t both_ns() const { return forward_ns + backward_ns; }
    Halves& operator+=(const Halves& other) {
      forward_ns += other.forward_ns;
      backward_ns += other.backward_ns;
      return *this;
    }
    Halves& operator-=(const Halves& other) {
      forward_ns -= other.forward_ns;
      backward_ns -= other.backward_ns;
      return *this;
    }
  };

  SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size);

  const strategy::Scheme& scheme() const { return figures_.scheme; }
  const cost::CostModel& cost() const { return figures_.cost; }
  // The longest sequence, over all lanes if necessary; 0: the model does not fit.
  int64_t max_len_tokens() const { return figures_.max_len_tokens; }
  // Tokens of one lane's micro-batch, and of all micro-batches that a lane may hold at a time.
  int64_t lane_max_len_tokens() const { return figures_.lane_max_len_tokens; }
  int64_t credit_tokens() const { return figures_.credit_tokens; }
  // The fewest lanes that hold a sequence: one if it fits a lane, else as many as its 2k even chunks need.
  // REQUIRES: length <= max_len_tokens().
  int fewest_lanes(int64_t length) const { return figures_.fewest_lanes(length); }
  // How long a sequence cut over `lanes` lanes keeps each of them busy on the slowest stage, as a
  // micro-batch of its own. Includes what the cheapest exchange exposes if the lanes begin with a node.
  int64_t lane_ns(int64_t length, int lanes) const {
    return micro_batch_work_ns(share_of(length, lanes), lanes);
  }
  // The same for a micro-batch with `work` on its fullest
  // lane. With several lanes all of its work is cut over them.
  int64_t micro_batch_work_ns(const cost::Work& work, int lanes) const {
    return halves(work, lanes).both_ns();
  }
  // The forward and the backward of that time.
  Halves halves(const cost::Work& work, int lanes) const;
  // The same costs for many calls with one number of lanes.
  class OnLanes;
  OnLanes on(int lanes) const;
  // The part of that time that the work alone takes on the slowest stage: no constant, no exchange.
  int64_t load_ns(const cost::Work& work) const;
  // The most that a lane gets of a sequence if every chunk attends as much as the longest.
  static cost::Work fullest_share(int64_t length, int lanes, int64_t window = 0);
  cost::Work share_of(int64_t length, int lanes) const {
    return fullest_share(length, lanes, cost().window());
  }
  // The work of one whole sequence, and of several.
  cost::Work work_of(int64_t length) const { return figures_.work_of(length); }
  cost::Work work_of(std::span<const int64_t> lengths) const { return figures_.work_of(lengths); }

  // T(l, P) of Hydraulis: forward plus backward of one sequence on the slowest stage. Tokens that fill a
  // micro-batch share its constant c, so this is the least that c costs a sequence. Lanes divide the time.
  // REQUIRES: length <= max_len_tokens().
  int64_t sequence_ns(int64_t length) const;
  // The approximate time that gathers and gradient sums add to a pass whose slowest lane has `work`, if lanes
  // share parameters: at its ends, and where they take longer than computing. Else 0. It proves nothing.
  int64_t gathers_ns(const cost::Work& work) const;
  // c of the slowest stage: the cost of one more micro-batch.
  int64_t micro_batch_ns() const;

  // Lower bounds for any schedule. The view is valid while this lives.
  SchemeFloors floors() const { return SchemeFloors(figures_); }

 private:
  void add_gathers();
  SchemeFigures figures_;
  int64_t gathering_ns_ = 0;             // added to a pass that computes nothing
  int64_t gather_ends_ns_ = 0;           // added to a pass that computes longer than any does
  std::vector<cost::Quadratic> stages_;  // the different ones
};

// The times of micro-batches on a number of lanes that begin with a node. The scheme's costs must outlive it.
class SchemeCost::OnLanes {
 public:
  OnLanes(const SchemeFigures& figures, int lanes);

  int lanes() const { return lanes_; }
  // The time on the slowest stage.
  Halves halves(const cost::Work& work) const;
  int64_t lane_ns(int64_t length) const { return halves(share_of(length)).both_ns(); }
  // The most tokens that a lane may have, whole sequences beside `shared`
  // work included, for the exchanges to stay those of that work.
  int64_t most_tokens(const cost::Work& shared) const;
  // The path through all stages, from the first cell to the last.
  int64_t path_ns(int64_t length) const;

 private:
  // Equal stages.
  struct Stage {
    const SchemeFigures::Stage* cells = nullptr;
    std::optional<cost::Exchanges::Placed> exchanges;  // none on one lane
    int count = 1;
    cost::Exchanges::Exposed exposed(const cost::Work& work) const {
      return exchanges ? exchanges->least(work) : cost::Exchanges::Exposed{};
    }
  };
  cost::Work share_of(int64_t length) const { return fullest_share(length, lanes_, figures_->cost.window()); }

  const SchemeFigures* figures_;
  int lanes_;
  std::vector<Stage> stages_;
};

inline SchemeCost::OnLanes SchemeCost::on(int lanes) const { return {figures_, lanes}; }

// The costs of pipelines, one entry for each combination of scheme, priced speed and memory.
class SchemeCosts {
 public:
  SchemeCosts() = default;
  SchemeCosts(std::span<const strategy::Strategy> strategies, const cost::CostModel& cost, int world_size);

  void add(const strategy::Pipeline& pipeline, const cost::CostModel& cost, int world_size);
  // Adds the costs for ranks at the priced speed.
  void add(const SchemeCost& scheme) {
    by_kind_.emplace(kind_of({.scheme = scheme.scheme(), .ranks = {}}), scheme);
  }
  // REQUIRES: the pipeline's kind was added.
  const SchemeCost& of(const strategy::Pipeline& pipeline) const { return by_kind_.at(kind_of(pipeline)); }

 private:
  using Kind = std::tuple<strategy::Scheme, int, int64_t>;
  static Kind kind_of(const strategy::Pipeline& pipeline) {
    return {pipeline.scheme, pipeline.priced_percent(), pipeline.device.memory_bytes};
  }

  std::map<Kind, SchemeCost> by_kind_;
};

}  // namespace sluice::plan

// What planning asks of a scheme: how much its lanes hold, how long a sequence keeps its slowest stage busy
// by estimate, and behind floors() what is proved of any schedule.
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
  // The longest sequence, on all lanes if need be; 0: the model does not fit.
  int64_t max_len_tokens() const { return figures_.max_len_tokens; }
  // What a lane's micro-batch holds, and what its lane holds at a time.
  int64_t lane_max_len_tokens() const { return figures_.lane_max_len_tokens; }
  int64_t credit_tokens() const { return figures_.credit_tokens; }
  // The fewest lanes that hold a sequence: one when a lane does, else as many as its 2k even chunks need.
  // REQUIRES: length <= max_len_tokens().
  int fewest_lanes(int64_t length) const { return figures_.fewest_lanes(length); }
  // How long a sequence that is cut over `lanes` lanes keeps each of them busy on the slowest stage: a
  // micro-batch of its own, with what the cheapest exchange exposes where they begin with a node.
  int64_t lane_ns(int64_t length, int lanes) const {
    return micro_batch_work_ns(share_of(length, lanes), lanes);
  }
  // The same for a micro-batch of `work` on the fullest of its lanes, all of it shared when there are
  // several.
  int64_t micro_batch_work_ns(const cost::Work& work, int lanes) const {
    return halves(work, lanes).both_ns();
  }
  // Of that, its forward, and its backward.
  Halves halves(const cost::Work& work, int lanes) const;
  // All of that for whoever asks it of many on as many lanes.
  class OnLanes;
  OnLanes on(int lanes) const;
  // Of that, what the work alone takes on the slowest stage: no constant, nothing exchanged.
  int64_t load_ns(const cost::Work& work) const;
  // The most that a lane has of a sequence when every chunk counts as long as the longest.
  static cost::Work fullest_share(int64_t length, int lanes, int64_t window = 0);
  cost::Work share_of(int64_t length, int lanes) const {
    return fullest_share(length, lanes, cost().window());
  }
  // A whole sequence's, and that of several.
  cost::Work work_of(int64_t length) const { return figures_.work_of(length); }
  cost::Work work_of(std::span<const int64_t> lengths) const { return figures_.work_of(lengths); }

  // T(l, P) of Hydraulis: forward plus backward of one sequence on the slowest stage. The constant c of a
  // micro-batch is shared by the tokens that fill it: the least that it can cost a sequence. Lanes divide it.
  // REQUIRES: length <= max_len_tokens().
  int64_t sequence_ns(int64_t length) const;
  // Where lanes share parameters, what gathers and sums of gradients add to a pass whose slowest lane has
  // `work`, about: at its ends, and where they take longer than computing; else 0. It proves nothing.
  int64_t gathers_ns(const cost::Work& work) const;
  // c of the slowest stage: what one more micro-batch costs.
  int64_t micro_batch_ns() const;

  // What any schedule takes at least. The view is good while this lives.
  SchemeFloors floors() const { return SchemeFloors(figures_); }

 private:
  void add_gathers();
  SchemeFigures figures_;
  int64_t gathering_ns_ = 0;             // of a pass that computes nothing
  int64_t gather_ends_ns_ = 0;           // of one that computes for as long as none takes
  std::vector<cost::Quadratic> stages_;  // those that differ
};

// What micro-batches take on so many lanes, which begin with a node. The scheme's costs must outlive it.
class SchemeCost::OnLanes {
 public:
  OnLanes(const SchemeFigures& figures, int lanes);

  int lanes() const { return lanes_; }
  // On the slowest stage.
  Halves halves(const cost::Work& work) const;
  int64_t lane_ns(int64_t length) const { return halves(share_of(length)).both_ns(); }
  // What a lane may have in all, whole sequences beside `shared` work too, for the exchanges to be those of
  // that work.
  int64_t most_tokens(const cost::Work& shared) const;
  // On all stages, one after the other: from its first cell to its last.
  int64_t path_ns(int64_t length) const;

 private:
  // Stages that are alike.
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

// Those of a strategy's pipelines: what differs between two is their schemes, their paces and their memories.
class SchemeCosts {
 public:
  SchemeCosts() = default;
  SchemeCosts(std::span<const strategy::Strategy> strategies, const cost::CostModel& cost, int world_size);

  void add(const strategy::Pipeline& pipeline, const cost::CostModel& cost, int world_size);
  // Of one on ranks as they are priced.
  void add(const SchemeCost& scheme) {
    by_kind_.emplace(kind_of({.scheme = scheme.scheme(), .ranks = {}}), scheme);
  }
  // REQUIRES: it was added.
  const SchemeCost& of(const strategy::Pipeline& pipeline) const { return by_kind_.at(kind_of(pipeline)); }

 private:
  using Kind = std::tuple<strategy::Scheme, int, int64_t>;
  static Kind kind_of(const strategy::Pipeline& pipeline) {
    return {pipeline.scheme, pipeline.priced_percent(), pipeline.device.memory_bytes};
  }

  std::map<Kind, SchemeCost> by_kind_;
};

}  // namespace sluice::plan

// The time that an exchange between a micro-batch's lanes adds to its cells beside their work, and which adds
// least.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange_bytes.h"
#include "model/head_parts.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// Why some micro-batch of the plan cannot exchange as it says, with the number and a way out, or "": a lane
// that exchanges heads needs at least one of its TP rank's.
std::string exchange_fault(const model::Shape& shape, const strategy::StepPlan& plan);

// Of "auto", those that planners choose from by default; of "cycle" all in turn; of a name of one that one.
// InputError listing them for another name.
ExchangeSet parse_exchange_set(const std::string& name);
// The same machine and model, where planners may choose from these.
CostModel choosing_from(const CostModel& cost, const ExchangeSet& exchanges);

// How the lanes of a micro-batch lie on nodes.
struct LanePlace {
  int lanes = 1;
  int fewest = 1;  // lanes on the node that has fewest of them
  int run = 1;     // neighbouring lanes on one node are always multiples of so many
  int nodes = 0;   // that they lie on; 0: not said, as few as may be
  int level = 1;   // of the topology, on which these nodes meet
  // For proofs: on so many nodes or more, however they lie there.
  bool at_least = false;

  bool in_node() const { return fewest == lanes; }
  int lanes_level() const { return in_node() ? 0 : level; }
  // Of the members of a ring of head groups of `head_lanes` lanes, so many neighbours always lie on one node.
  int members_in_node(int head_lanes) const;
  bool operator==(const LanePlace&) const = default;

  // `node_of_lane`: of each of them, in order. REQUIRES: not empty.
  static LanePlace of(std::span<const int> node_of_lane, int level = 1);
  // From the first lane of a node on, where so many fit a node.
  static LanePlace aligned(int lanes, int lanes_of_node, int level = 1);
  // Of so many TP ranks, from the first rank of a group that has room for all.
  static LanePlace aligned(int lanes, int tp, const strategy::Topology& topology);
};

// An exchange as micro-batches name it.
struct ExchangeChoice {
  strategy::Exchange exchange = strategy::Exchange::kRing;
  int nested_lanes = 0;

  int head_lanes(int lanes) const;  // of a micro-batch of so many: those that exchange heads
  bool operator==(const ExchangeChoice&) const = default;
};

// The time that lanes add to one kind of a micro-batch's cells by an exchange in which queries stay, its
// figures looked up.
struct ExchangeTimes {
  // Of heads of so many layers, that go there and back within head groups.
  struct Rows {
    int64_t layers = 0;
    // Of all times that they go, and what an adapter takes of a token.
    LinkTimes inside, between;
    int64_t inside_bytes = 0, between_bytes = 0;
    int64_t exposed_ns(int64_t tokens) const;
  };
  Rows attention, recurrent;
  Quadratic waiting;     // for the lane with most heads
  int64_t scans_ns = 0;  // of any tokens
  // Of rings of so many members on each of so many nodes. For proofs, at_least: on so many nodes or more, or
  // of so many members on one.
  RingTimes between_nodes, in_node;
  int nodes = 1;
  int members_in_node = 1;
  bool at_least = false;

  // Not more exactly than that it is `enough_ns` or more.
  int64_t exposed_ns(const Work& shared, int64_t enough_ns = std::numeric_limits<int64_t>::max()) const;
};

// Exchanges of micro-batches of one scheme, under a cost model's memory policy.
//
// A head group of g lanes exchanges heads twice in a forward (queries, keys and values there, outputs back)
// and twice in a backward (their gradients). A lane with n query and m key heads moves (g − 1)·(2n + 2m)·d
// elements a token of its own each time; the lane with most heads counts. Links inside a node and between
// nodes work side by side, and nothing hides them. Where heads do not divide by g, attention waits for the
// lane with ⌈H/g⌉ of them: ⌈H/g⌉·g/H times its even share. Between groups blocks of keys and values go round
// as in a ring of lanes/g members (RingTimes), of m heads and all tokens of a group; on two levels where
// several members lie on a node each. Where queries travel (strategy::balanced_schedule, query_schedule) a
// step takes the longer of its attention and of what its busiest lane sends, or receives, for the next step
// and of the one before. States of recurrent layers go past both chunks of every group, from lane to lane
// inside a node and between nodes, in blocks of which each is on its way while the one before is made.
class Exchanges {
 public:
  class Placed;

  Exchanges(const strategy::Scheme& scheme, const CostModel& cost);

  struct Exposed {
    int64_t forward_ns = 0;
    int64_t backward_ns = 0;  // of the input gradient
    int64_t both_ns() const { return forward_ns + backward_ns; }
  };
  // For a micro-batch's cells on one stage. `shared`: its fullest lane's work, all of it shared. REQUIRES:
  // head_lanes divides the lanes, and there are heads for it.
  Exposed exposed(int stage, const Work& shared, const LanePlace& place, int head_lanes) const;
  Exposed exposed(int stage, const Work& shared, const LanePlace& place, const ExchangeChoice& choice) const;

  struct StagePlace {
    int stage = 0;
    LanePlace place;
  };
  // Of the exchanges that the cost model allows, that have heads enough and with which the `tokens` of the
  // fullest lane, its own ones too, fit a micro-batch of max_tokens (credit_tokens), the one that exposes
  // least on these stages together; of equals a ring, then heads, then nested with the widest groups; where
  // they are taken in turn, the one whose turn it is. A ring where there is none. `stages`: not empty; those
  // with the same times and place as another may be left out.
  ExchangeChoice cheapest(const Work& shared, int64_t tokens, std::span<const StagePlace> stages,
                          int64_t max_tokens) const;
  // For proofs. The same at least, for any such micro-batch on as many lanes of nodes of which each has at
  // most most_in_node.
  int64_t floor_ns(int stage, const Work& shared, int lanes, int most_in_node) const;
  // What a micro-batch that exchanges heads over all its lanes, so many or more, exposes on them together, at
  // least, for each of its sequences of such a length. Latencies are not counted, which are more than what
  // rounding takes off. Nothing where no micro-batch may.
  std::optional<int64_t> heads_area_ns(int stage, int64_t length, int lanes, int most_in_node) const;
  // The same of a nested micro-batch's head groups of so many lanes, without the ring between them.
  std::optional<int64_t> head_groups_area_ns(int stage, int64_t length, int head_lanes) const;

  int most_head_lanes() const { return static_cast<int>(most_.size()) - 1; }
  bool alike(int stage, int other) const {
    return stages_[static_cast<size_t>(stage)] == stages_[static_cast<size_t>(other)];
  }
  // What the tokens on a lane of a micro-batch of so many take of its credit, which is counted in tokens of
  // rings: as much more as they hold from forward to backward, and at work. Rounded up.
  int64_t credit_tokens(const ExchangeChoice& choice, int lanes, int64_t tokens) const;

 private:
  // Of a stage, one kind of cell.
  struct Times {
    std::vector<RingTimes> rings;  // of single lanes, by level of the topology
    int64_t blocks = 0;            // that a ring passes: keys and values, or their gradients as well
    int64_t passes_permille = 0;   // of heads, there and back, in the mean of its layers
    Quadratic attention;           // of all that waits for the lane with most heads; its squares' parts alone
    const RingTimes& ring(int level) const { return rings[static_cast<size_t>(level)]; }
    bool operator==(const Times&) const = default;
  };
  struct Stage {
    Times forward;
    Times backward;
    bool operator==(const Stage&) const = default;
  };
  ExchangeTimes times_of(const Times& times, const LanePlace& place, int head_lanes) const;
  const LinkTimes& link(int level) const { return links_[static_cast<size_t>(level)]; }
  int64_t travelling_ns(const Stage& stage, bool forward, const Work& shared, const LanePlace& place,
                        strategy::Exchange exchange) const;
  int64_t held_bytes_of(const ExchangeChoice& choice, int lanes) const;  // of a token
  int64_t scan_ns(const RingTimes& times, const LanePlace& place, int head_lanes) const;
  ExchangeTimes::Rows rows_of(int64_t layers, int64_t passes_permille, int64_t row_bytes,
                              const LanePlace& place, int head_lanes) const;
  Wide moved_bytes(const Stage& times, const model::HeadCounts& heads, int64_t length) const;
  int64_t waiting_area_ns(const Stage& times, int64_t length, int head_lanes) const;
  // Those that the cost model allows and that have heads enough, in the order in which equals are taken, and
  // the most tokens of a lane of which each fits a micro-batch.
  struct Allowed {
    ExchangeChoice choice;
    int64_t most_tokens = 0;
  };
  std::vector<Allowed> allowed(const LanePlace& place, int64_t max_tokens) const;

  ExchangeSet allowed_;
  strategy::Topology topology_;
  std::vector<LinkTimes> links_;  // by level
  int tp_ = 1;
  int sharers_ = 1;                           // lanes of a node on one adapter
  int64_t head_bytes_ = 0;                    // a token's row of one head
  model::HeadCounts heads_;                   // of a TP rank
  std::vector<model::HeadCounts> most_;       // of a lane, by lanes of its head group
  std::vector<int64_t> held_bytes_;           // of a token, by lanes of a head group
  int64_t held_travelling_bytes_ = 0;         // where queries travel
  int64_t statistic_bytes_ = 0;               // a token's log-sum-exps
  std::vector<int64_t> recurrent_row_bytes_;  // there and back of a recurrent layer, likewise
  std::vector<Stage> stages_;
};

// What the cheapest exchange exposes on one stage, were it the only one, of micro-batches whose lanes all lie
// alike: for whoever asks it of many.
class Exchanges::Placed {
 public:
  // `of` must outlive it.
  Placed(const Exchanges& of, int stage, const LanePlace& place, int64_t max_tokens);
  Exposed least(const Work& shared) const;
  // The most tokens that a lane may have in all for the same exchange to be allowed.
  int64_t most_tokens(const Work& shared) const;

 private:
  struct Choice {
    Allowed allowed;
    ExchangeTimes forward, backward;  // unless queries travel
  };
  // Not more exactly than that both are `enough_ns` or more.
  Exposed exposed(const Choice& choice, const Work& shared, int64_t enough_ns) const;
  struct Least {
    Exposed exposed;
    int64_t most_tokens = 0;
  };
  Least find(const Work& shared) const;

  const Exchanges& of_;
  int stage_;
  LanePlace place_;
  int64_t max_tokens_;
  std::vector<Choice> choices_;
};

}  // namespace sluice::cost

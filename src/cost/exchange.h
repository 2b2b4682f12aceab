// The time that an exchange between a micro-batch's lanes (context parallelism) adds to its cells beside
// their work, and the exchange that adds least.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/never.h"
#include "cost/cost_model.h"
#include "cost/exchange_bytes.h"
#include "model/head_parts.h"
#include "strategy/planning_words.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// The reason why a micro-batch of the plan cannot use its exchange, with the number and a way out, or "". A
// lane that exchanges heads needs at least one of its TP rank's heads.
std::string exchange_fault(const model::Model& model, const strategy::StepPlan& plan);

// The exchanges that planners choose from under the rule.
ExchangeSet exchange_set(strategy::ExchangeRule rule);
// The same machine and model; planners may choose from `exchanges`.
CostModel choosing_from(const CostModel& cost, const ExchangeSet& exchanges);

// How the lanes of a micro-batch lie on nodes.
struct LanePlace {
  int lanes = 1;
  int fewest = 1;  // lanes on the node that has fewest of them
  int run = 1;     // runs of neighbouring lanes on one node are multiples of this
  int nodes = 0;   // number of nodes; 0: not known, as few as possible
  int level = 1;   // topology level on which these nodes meet
  // For lower bounds: on `nodes` or more nodes, in any order.
  bool at_least = false;

  bool in_node() const { return fewest == lanes; }
  int lanes_level() const { return in_node() ? 0 : level; }
  // How many neighbouring members of a ring of head groups of `head_lanes` lanes always lie on one node.
  int members_in_node(int head_lanes) const;
  bool operator==(const LanePlace&) const = default;

  // `node_of_lane`: each lane's node, in order. REQUIRES: not empty.
  static LanePlace of(std::span<const int> node_of_lane, int level = 1);
  // Lanes from the first lane of a node on; each node has room for `lanes_of_node`.
  static LanePlace aligned(int lanes, int lanes_of_node, int level = 1);
  // Lanes of `tp` ranks each, from the first rank of a group that has room for all.
  static LanePlace aligned(int lanes, int tp, const strategy::Topology& topology);
};

// An exchange as micro-batches name it.
struct ExchangeChoice {
  strategy::Exchange exchange = strategy::Exchange::kRing;
  int nested_lanes = 0;

  int head_lanes(int lanes) const;  // lanes that exchange heads, of so many in a micro-batch
  bool operator==(const ExchangeChoice&) const = default;
};

// The time that an exchange adds to one kind of a micro-batch's cells if queries stay on their lanes. Its
// figures are looked up once.
struct ExchangeTimes {
  // Rows of heads that travel there and back within head groups, in so many layers.
  struct Rows {
    int64_t layers = 0;
    // Latencies of all transfers together, and bytes of one token on a link or adapter.
    LinkTimes inside, between;
    int64_t inside_bytes = 0, between_bytes = 0;
    int64_t exposed_ns(int64_t tokens) const;
  };
  Rows attention, recurrent;
  Quadratic waiting;     // waiting for the lane with most heads
  int64_t scans_ns = 0;  // as long for any number of tokens
  // Rings with so many members on each of so many nodes. If at_least (for lower bounds): on so many or more
  // nodes, or with so many members on one.
  RingTimes between_nodes, in_node;
  int nodes = 1;
  int members_in_node = 1;
  bool at_least = false;

  // Exact only below `enough_ns`; a larger result means that the time is `enough_ns` or more.
  int64_t exposed_ns(const Work& shared, int64_t enough_ns = base::kNever) const;
};

// Exchanges of micro-batches of one scheme, under a cost model's memory policy.
//
// A head group of g lanes exchanges heads twice in a forward (queries, keys and values there, outputs back)
// and twice in a backward (their gradients). A lane with n query and m key heads moves (g − 1)·(2n + 2m)·d
// elements for each of its tokens each time; the lane with most heads counts. Links inside a node and between
// nodes work side by side, and nothing hides them. If g does not divide the heads, attention waits for the
// lane with ⌈H/g⌉ of them: ⌈H/g⌉·g/H times its even share. Between head groups, blocks of keys and values go
// round a ring of lanes/g members (RingTimes), on two levels if a node holds several. A block has m heads and
// all tokens of a group. If queries travel (strategy::balanced_schedule, query_schedule), a step takes the
// longer of its attention and of its busiest lane's rows sent, or received, for the next step and from the
// step before. Recurrent layers pass states through both chunks of every group, from lane to lane inside a
// node and between nodes, in blocks: one travels while another is made.
class Exchanges {
 public:
  class Placed;

  Exchanges(const strategy::Scheme& scheme, const CostModel& cost);

  struct Exposed {
    int64_t forward_ns = 0;
    int64_t backward_ns = 0;  // input gradient
    int64_t both_ns() const { return forward_ns + backward_ns; }
  };
  // Exposed time of a micro-batch's cells on one stage. `shared`: its fullest lane's work, all of it shared.
  // REQUIRES: head_lanes divides the lanes, and there are heads for it.
  Exposed exposed(int stage, const Work& shared, const LanePlace& place, int head_lanes) const;
  Exposed exposed(int stage, const Work& shared, const LanePlace& place, const ExchangeChoice& choice) const;

  struct StagePlace {
    int stage = 0;
    LanePlace place;
  };
  // The exchange that exposes least on these stages together. Candidates are the exchanges that the cost
  // model allows, that have enough heads, and with which the fullest lane's `tokens` (whole sequences
  // included) fit a micro-batch of max_tokens (credit_tokens). A ring wins among equals, then heads, then
  // nested with the widest groups; with ExchangeSet::in_turn they alternate. A ring if there is no candidate.
  // `stages`: not empty; a stage with the same times and place as another may be left out.
  ExchangeChoice cheapest(const Work& shared, int64_t tokens, std::span<const StagePlace> stages,
                          int64_t max_tokens) const;
  // For lower bounds: the least that any such micro-batch exposes on `lanes` lanes of nodes, if each node
  // holds at most `most_in_node` of them.
  int64_t floor_ns(int stage, const Work& shared, int lanes, int most_in_node) const;
  // The least time that a micro-batch exposes on all its lanes together, for each sequence of `length`, if it
  // exchanges heads over all its lanes, `lanes` or more. Latencies are not counted; they exceed what rounding
  // takes off. Nothing if the exchange is not allowed.
  std::optional<int64_t> heads_area_ns(int stage, int64_t length, int lanes, int most_in_node) const;
  // The same for a nested micro-batch's head groups of so many lanes, without the ring between groups.
  std::optional<int64_t> head_groups_area_ns(int stage, int64_t length, int head_lanes) const;

  int most_head_lanes() const { return static_cast<int>(most_.size()) - 1; }
  bool alike(int stage, int other) const {
    return stages_[static_cast<size_t>(stage)] == stages_[static_cast<size_t>(other)];
  }
  // The credit that `tokens` on a lane take in a micro-batch of `lanes`. Credit counts tokens of rings, so
  // other exchanges take more as they hold more from forward to backward and at work. Rounded up.
  int64_t credit_tokens(const ExchangeChoice& choice, int lanes, int64_t tokens) const;

 private:
  // One kind of cell of a stage.
  struct Times {
    std::vector<RingTimes> rings;  // for single lanes, by level of the topology
    int64_t blocks = 0;            // passed by a ring: keys and values, or also their gradients
    int64_t passes_permille = 0;   // heads there and back, in the mean of the layers
    Quadratic attention;           // all that waits for the lane with most heads; a and a_windowed alone
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
  int64_t held_bytes_of(const ExchangeChoice& choice, int lanes) const;  // a token's
  int64_t scan_ns(const RingTimes& times, const LanePlace& place, int head_lanes) const;
  ExchangeTimes::Rows rows_of(int64_t layers, int64_t passes_permille, int64_t row_bytes,
                              const LanePlace& place, int head_lanes) const;
  Wide moved_bytes(const Stage& times, const model::HeadCounts& heads, int64_t length) const;
  int64_t waiting_area_ns(const Stage& times, int64_t length, int head_lanes) const;
  // The exchanges that the cost model allows and that have enough heads, in the order in which equals are
  // taken, each with the most tokens that a lane may have for it.
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
  model::HeadCounts heads_;                   // a TP rank's
  std::vector<model::HeadCounts> most_;       // a lane's, by lanes of its head group
  std::vector<int64_t> held_bytes_;           // a token's, by lanes of a head group
  int64_t held_travelling_bytes_ = 0;         // if queries travel
  int64_t statistic_bytes_ = 0;               // a token's log-sum-exps
  std::vector<int64_t> recurrent_row_bytes_;  // there and back in a recurrent layer, likewise
  std::vector<Stage> stages_;
};

// The time that the cheapest exchange exposes on one stage, as if it were the only stage. For callers that
// price many micro-batches whose lanes lie alike.
class Exchanges::Placed {
 public:
  // REQUIRES: the Exchanges outlive this object.
  Placed(const Exchanges& of, int stage, const LanePlace& place, int64_t max_tokens);
  Exposed least(const Work& shared) const;
  // The most tokens that a lane may have in all for the same exchange to stay allowed.
  int64_t most_tokens(const Work& shared) const;

 private:
  struct Choice {
    Allowed allowed;
    ExchangeTimes forward, backward;  // unless queries travel
  };
  // Exact only below `enough_ns`, as ExchangeTimes::exposed_ns.
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

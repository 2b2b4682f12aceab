// Static schedules of attention over lanes that share sequences: in which step and lane queries meet keys,
// and which rows travel for it. They are pure integers, so tests need no tensors.
//
// A lane's *keys* are the keys and values of its rows of shared sequences; *queries* are those of the same
// rows. Own rows meet in step 0, without a Task. In each step a lane begins to send, then attends, then
// returns results for others' rows. Rows due in a step arrive before it begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strategy/pipeline_micro_batch.h"

namespace sluice::strategy {

struct RowSchedule {
  // Lanes are numbered by their position among the sharing lanes. The lane `of` owns the rows.
  enum class Rows : uint8_t { kKeys, kQueries };

  struct Task {
    int step = 0;
    int at = 0;  // the lane that attends: it owns the queries or the keys
    int queries = 0;
    int keys = 0;
  };
  // Rows that travel from the begin of step `issued` and have arrived before step `due`.
  struct Hop {
    int issued = 0;
    int due = 0;
    Rows rows = Rows::kKeys;
    int of = 0;
    int from = 0;
    int to = 0;
  };
  // Partial results for another lane's rows, summed with those that arrived before: outputs of queries, their
  // gradients in the backward; gradients of keys, in the backward alone. Receivers add them up until the
  // owner has them. Unlike a Hop's, `issued` means behind that step's attention.
  using Return = Hop;

  int lanes = 1;
  int steps = 1;  // 0 to steps − 1; in the last ones lanes may only return results
  // All in the order of steps; between two lanes, transfers go in the order of the list.
  std::vector<Task> tasks;
  std::vector<Hop> hops;
  std::vector<Return> returns;
  // Whether lanes hold contiguous parts, so that they attend to earlier lanes alone (Cutting::kContiguous).
  bool contiguous = false;
};

// Ring Attention (Liu et al. 2023): keys go from lane to lane, their gradients one step behind. `in_node`:
// the number of neighbouring lanes on a node; it divides `lanes`. With several nodes of several lanes, keys
// go round inside each node, and meanwhile, once a round, to the lane in the same place of the next node;
// sums of gradients do the same. A lane then sends lanes/in_node − 1 times between nodes, whereas in a flat
// ring some lanes send lanes − 1 times.
RowSchedule ring_schedule(int lanes, int in_node = 1);

// The greatest common divisor of the lengths of stretches of lanes on one node. Aligned runs of that length
// lie on one node each. REQUIRES: not empty.
int neighbours_in_node(std::span<const int> node_of_lane);

// LightSeq (Li et al. 2023, "DistFlashAttn"): parts are contiguous, so later lanes have more to attend to and
// earlier ones help. In step s lane p >= s attends to the keys of lane p − s, which come straight from there.
// A lane p < s attends in place of lane p + lanes − s: it receives that lane's queries and returns the
// outputs. After ⌊lanes ÷ 2⌋ steps every pair has met.
RowSchedule balanced_schedule(int lanes);

// TokenRing (Wang et al. 2024): keys stay, queries go from lane to lane. Outputs go straight home; beyond
// half the ring that is against the direction of queries.
RowSchedule query_schedule(int lanes);

// How many neighbouring members of a ring always lie on one node, if each member is a group of `member_lanes`
// lanes and `together` neighbouring lanes always lie on one node.
int members_in_node(int members, int member_lanes, int together);

// The schedule of an exchange over `members` members, `in_node` neighbours of which always lie on one node (a
// ring then has two levels). Built at the first call and kept. Thread-safe.
const RowSchedule& schedule_of(Exchange exchange, int members, int in_node = 1);

// Keys travel straight from their owners: in step i + 1 every lane attends to the keys of the lane
// `behind[i]` lanes before it. Gradients return straight to the owners.
RowSchedule direct_schedule(int lanes, const std::vector<int>& behind);

}  // namespace sluice::strategy

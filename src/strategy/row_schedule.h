// Which lane attends to what, and when, and which rows travel for it: static schedules of the lanes that
// share sequences. Pure integers, so that a test proves each of them without a tensor (fault_of).
//
// A lane's *keys* are the keys and values of its rows of shared sequences; its *queries* are theirs. Own rows
// meet without a schedule, in step 0. In a step a lane first begins to send, then attends, then returns what
// it has made of others' rows; what is due in a step is there before it begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strategy/pipeline_micro_batch.h"

namespace sluice::strategy {

struct RowSchedule {
  // Lanes by their place among those that share; `of`: whose rows.
  enum class Rows : uint8_t { kKeys, kQueries };

  struct Task {
    int step = 0;
    int at = 0;  // this lane: one of the two
    int queries = 0;
    int keys = 0;
  };
  // Rows on their way, in `issued` and there in `due`.
  struct Hop {
    int issued = 0;
    int due = 0;
    Rows rows = Rows::kKeys;
    int of = 0;
    int from = 0;
    int to = 0;
  };
  // What a lane has made of others' rows so far and what came to it of the same: of queries their outputs,
  // and backwards their gradients; of keys, backwards alone, their gradients. Who gets them adds them up, and
  // so they come to whose rows they are. As Hop: issued behind the step's attention, due before another's.
  using Return = Hop;

  int lanes = 1;
  int steps = 1;  // 0 to steps − 1; none attends in the last ones where returns are still under way
  // Each in the order of steps; what two lanes send each other has the order of the list.
  std::vector<Task> tasks;
  std::vector<Hop> hops;
  std::vector<Return> returns;
  // Whether lanes hold contiguous parts, so that they attend to earlier lanes alone (Cutting).
  bool contiguous = false;
};

// Ring Attention (Liu et al. 2023): keys go from lane to lane, their gradients one step behind. `in_node`:
// how many neighbouring lanes lie on a node; divides them. Where these are several, and several times as
// many, keys go round inside each node, and once a round to the same place of the next node, beside all of
// it; so do gradients' sums. Between nodes a lane then sends lanes/in_node − 1 times instead of some lanes −
// 1 times.
RowSchedule ring_schedule(int lanes, int in_node = 1);

// Of lanes on these nodes, how many neighbours on one are always together: what runs of lanes of a node have
// in common. REQUIRES: not empty.
int neighbours_in_node(std::span<const int> node_of_lane);

// LightSeq (Li et al. 2023, "DistFlashAttn"): of contiguous parts the later lanes have more to attend to, so
// the earlier ones help. In step s lane p attends to the keys of lane p − s, which come straight from it; a
// lane p < s attends in place of lane p + lanes − s, whose queries come to it and whose outputs it returns.
// After ⌊lanes ÷ 2⌋ steps every pair has met.
RowSchedule balanced_schedule(int lanes);

// TokenRing (Wang et al. 2024): keys stay, queries go from lane to lane, and outputs straight home, against
// their direction where they are more than half way round.
RowSchedule query_schedule(int lanes);

// Of the members of a ring, groups of so many lanes of which `together` neighbours always lie on one node,
// how many always do.
int members_in_node(int members, int member_lanes, int together);

// What members that attend by this exchange do, `in_node` neighbours of which always lie on one node: rings
// on two levels where that divides them. Made when it is first asked for, and kept. Thread-safe.
const RowSchedule& schedule_of(Exchange exchange, int members, int in_node = 1);

// Keys straight from their owners to those that see them, those that lie `behind[i]` lanes behind, in step
// i + 1; gradients straight home.
RowSchedule direct_schedule(int lanes, const std::vector<int>& behind);

// Why the schedule would not do, in words; "" where every pair of lanes that has something to attend to meets
// once, with what it needs at hand, and every result comes home once.
std::string fault_of(const RowSchedule& schedule);

// The most sets of others' rows of one kind that a lane has at a time, on their way or at hand.
int most_at_hand(const RowSchedule& schedule);

}  // namespace sluice::strategy

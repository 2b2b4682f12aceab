// Sequences to micro-batches, whatever lanes and stages a pipeline has and lanes share: passes on a strip.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// Micro-batches of the packing's sequences; nothing where none that are found end below options.below_ns.
//
// Where lanes share parameters the step is cut into passes, as few as hold the sequences and one more; with
// several stages, on one lane, too, into as many as keep them busy, small ones at both ends, which run the
// longest sequences first, or in the middle. Else they are even, but for those of sequences that take longer.
// Elsewhere the step is one pass, in which lanes run loads one behind the other. A strip (plan/strip.h) is
// filled for trial ends, from the least that the work allows upwards until one holds all, then bisected. The
// try that ends soonest by the schedule is the plan, the first of equals.
//
// Trials have eight knobs (plan/strip.h, Trial). For a number of passes these products of them are tried, one
// behind the other, each only for ends before the soonest that was found:
//
//   phase        | where                | least_lanes          | most_milli  | others
//   -------------+----------------------+----------------------+-------------+---------------------------------
//   together     | everywhere           | 1, 2, 4 .. a node's; | 1000        | keeps_whole no, and yes where
//                |                      | all, until one holds |             | lanes span nodes (without stages)
//                | several lanes,       | 1                    | 1000 .. 550 | the same; stacks unless lanes
//                | no stages            |                      |             | share parameters
//   first longer | several passes,      | the soonest's        | the same    | the first pass 1.25, 1.5 and 1.75
//                | no stages            |                      |             | times an even one
//   apart        | lanes that share     | the same             | 1000 .. 550 | apart; the forward's part as
//                |                      |                      |             | found, of all work, and between
//                |                      | the same             | the same    | apart; that part moved by 0.4 %,
//                |                      |                      |             | 0.2 % and 0.1 %, up and down
//   levelled     | lanes that share,    | 1, 2, 4 .. all       | 1000        | spreads; one end a little later
//                | uneven or few        |                      |             | than found, then local search
//
// most_tokens is what the stages' credit allows. With several stages each number of passes and of small ones
// at the ends has the first phase alone; many sequences have least_lanes 1 there.
std::optional<TimedMicroBatches> pack_strip(Packing& packing);

}  // namespace sluice::plan

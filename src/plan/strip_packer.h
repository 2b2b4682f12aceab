// Packs sequences into micro-batches, for any lanes, stages and FSDP degree: passes on a strip.
#pragma once

#include <optional>

#include "plan/packing.h"

namespace sluice::plan {

// Packs the packing's sequences; nothing if no micro-batches found end below options.below_ns.
//
// With FSDP the step is cut into passes: as few as hold the sequences, and one more. With several
// stages of one lane or more there are as many passes as keep the stages busy, small ones at both
// ends; the longest sequences run first or in the middle. Otherwise passes are even, unless a
// sequence takes longer. Without both the step is one pass, in which lanes run loads one after the
// other. A strip (plan/strip.h) is filled for trial ends, upwards from the least that the work allows
// until one holds all, then bisected. The plan is the try with the soonest end under the schedule.
//
// Trials have eight knobs (plan/strip.h, Trial), and a shape of passes has two. For each number of
// passes the products of values below are tried in order, each only for ends before the soonest so far.
//
//   phase        | where                | least_lanes          | most_milli  | others
//   -------------+----------------------+----------------------+-------------+---------------------------------
//   together     | everywhere           | 1, 2, 4 .. a node's; | 1000        | keeps_whole no, and yes where
//                |                      | all, until one holds |             | lanes span nodes (without
//                stages) | several lanes,       | 1                    | 1000 .. 550 | the same; stacks
//                unless lanes | no stages            |                      |             | share parameters
//   first longer | several passes,      | 1                    | 1000        | the first pass 1.25, 1.5
//   and 1.75
//                | no stages            |                      |             | times an even one
//   apart        | lanes that share     | the soonest's        | 1000 .. 550 | apart; the forward's part as
//                |                      |                      |             | found, of all work, and
//                between |                      | the same             | the same    | apart; that part moved
//                by 0.4 %, |                      |                      |             | 0.2 % and 0.1 %, up
//                and down
//   levelled     | lanes that share,    | 1, 2, 4 .. all       | 1000        | spreads; one end a little
//   later
//                | uneven or few        |                      |             | than found, then local search
//
// most_tokens is the stages' credit. With several stages each number of passes and of small
// passes at the ends has the first phase alone; least_lanes is 1 if sequences are many.
std::optional<TimedMicroBatches> pack_strip(Packing& packing);

}  // namespace sluice::plan

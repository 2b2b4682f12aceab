// A micro-batch: sequences that pass the stages of a pipeline together, on one lane or cut over several. What
// each lane holds of them, and which lanes run in step, follows from the micro-batch here and nowhere else.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/interval.h"
#include "strategy/memory_policy.h"

namespace sluice::strategy {

// Token range [begin, end) of one sequence on one lane.
struct Piece {
  int32_t sequence = 0;  // index into StepPlan::sequences
  int64_t begin = 0;
  int64_t end = 0;
  int64_t tokens() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

// How lanes that share sequences see each other's keys and values. kRing: blocks of them go round while each
// lane attends to the block before. kHeads (Ulysses): before attention a lane gives away all heads but its
// own part, after it takes its tokens back. kNested: head groups, neighbouring lanes as those of a node,
// exchange heads; blocks of the keys and values of a group's heads go round from group to group. kBalanced
// (LightSeq): of contiguous parts the later lanes have more to attend to, and earlier ones help them.
// kQueries (TokenRing): keys and values stay, queries go round and outputs come back. Which rows travel when:
// row_schedule.h.
enum class Exchange : uint8_t { kRing, kHeads, kNested, kBalanced, kQueries };
inline constexpr std::array kExchanges = {Exchange::kRing, Exchange::kHeads, Exchange::kNested,
                                          Exchange::kBalanced, Exchange::kQueries};
const char* name_of(Exchange exchange);  // "ring", "heads", "nested", "balanced", "queries"
// InputError listing the names for any other.
Exchange parse_exchange(const std::string& name);
// Whether lanes exchange heads, all or in groups, before they attend.
inline bool exchanges_heads(Exchange exchange) {
  return exchange == Exchange::kHeads || exchange == Exchange::kNested;
}
// Whether queries go to where keys lie.
inline bool moves_queries(Exchange exchange) {
  return exchange == Exchange::kBalanced || exchange == Exchange::kQueries;
}

// Which tokens of a sequence a lane has. kCausal: of 2k even chunks, k the lanes, lane j has chunk j and
// chunk 2k − 1 − j, so that all have the same part of its attention; the empty chunks of short sequences are
// left out. Where branches share a prefix a chunk is a part of that and one of what they have together, in
// proportion, and as many tokens as without; a lane has its parts of the prefix first. kContiguous: lane j
// has the j-th of k even parts.
enum class Cutting : uint8_t { kCausal, kContiguous };
inline Cutting cutting_of(Exchange exchange) {
  return exchange == Exchange::kBalanced ? Cutting::kContiguous : Cutting::kCausal;
}

// A whole sequence as a unit has it.
struct MicroBatchSequence {
  int32_t sequence = 0;  // index into StepPlan::sequences
  int64_t length_tokens = 0;
  // Of one with branches (Sequence::branches): what they share, and how long the branch of their mean token
  // is, Σ l² ÷ Σ l to nearest, from which what they attend to follows. None: 0.
  int64_t prefix_tokens = 0;
  int64_t branch_tokens = 0;
  bool has_branches() const { return branch_tokens > 0; }
  bool operator==(const MicroBatchSequence&) const = default;
};

// On each of its lanes a micro-batch, on each stage one event of all of them.
struct PipelineMicroBatch {
  int first_lane = 0;
  int lanes = 1;
  std::vector<MicroBatchSequence> sequences;  // several lanes: each is cut over all of them (lane_pieces)
  // Several lanes: the whole sequences that a lane has behind its parts, by lane; empty: none has any.
  std::vector<std::vector<MicroBatchSequence>> own = {};
  Exchange exchange = Exchange::kRing;  // of several lanes
  int nested_lanes = 0;                 // kNested: lanes of a head group; else 0
  MemoryPolicy memory = {};             // of the activations
  int number = 0;  // several lanes: what plan.json calls the micro-batch; no two have the same
  // Micro-batches with the same one run as one event, because their lanes share parameters (strategy/pass.h);
  // none: alone, as all do where lanes share nothing.
  std::optional<int> pass = std::nullopt;

  int end_lane() const { return first_lane + lanes; }
  // How many neighbouring lanes exchange heads: all with kHeads, of others than kNested 1.
  int head_lanes() const;
  bool covers(int lane) const { return first_lane <= lane && lane < end_lane(); }
  // REQUIRES: covers(lane).
  std::vector<Piece> pieces_on(int lane) const;
  int64_t tokens_on(int lane) const;
  int64_t tokens() const;  // on its fullest lane
  bool operator==(const PipelineMicroBatch&) const = default;
};

std::vector<Piece> lane_pieces(const MicroBatchSequence& sequence, int lanes, int lane,
                               Cutting cutting = Cutting::kCausal);

// Chunk `chunk` of the 2k chunks of a sequence of `length_tokens` on k lanes.
base::Interval causal_chunk(int64_t length_tokens, int lanes, int chunk);

// By lane, the micro-batches that lie on it, in their order.
std::vector<std::vector<int>> micro_batches_by_lane(std::span<const PipelineMicroBatch> micro_batches,
                                                    int lanes);

// The order of injection of micro-batches that lanes run in these orders: the first of every lane, then the
// second of every lane, and so on; a micro-batch of several lanes where its last lane reaches it. Nothing
// when micro-batches cross: one lane has a before b, another b before a.
std::optional<std::vector<int>> injection_order(const std::vector<std::vector<int>>& lanes);

// The same micro-batches in the order of injection, of lanes that run them in these orders, or in that of the
// list. REQUIRES: they do not cross.
std::vector<PipelineMicroBatch> in_injection_order(std::vector<PipelineMicroBatch> micro_batches,
                                                   const std::vector<std::vector<int>>& lanes);
std::vector<PipelineMicroBatch> in_injection_order(std::vector<PipelineMicroBatch> micro_batches, int lanes);

}  // namespace sluice::strategy

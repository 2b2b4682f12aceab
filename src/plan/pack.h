// Stage two of assignment: the sequences of one pipeline to micro-batches.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"
#include "plan/seeds.h"

namespace sluice::plan {

// A sequence on its way into a micro-batch.
struct PackItem {
  int sequence = 0;  // index into the batch
  int64_t tokens = 0;
  int64_t work_ns = 0;  // SchemeCost::sequence_ns
};

// Micro-batches as lists of indices into the items.
using Bins = std::vector<std::vector<int>>;

// First-fit decreasing: few bins of at most `capacity_tokens`. REQUIRES: each item fits a bin.
Bins first_fit_decreasing(std::span<const PackItem> items, int64_t capacity_tokens);

// Exactly `bins` bins with even work: the most work first, each to the bin with the least work among those
// with room. Nothing when an item finds no room. REQUIRES: 1 <= bins <= items.size().
std::optional<Bins> balance(std::span<const PackItem> items, int bins, int64_t capacity_tokens);

// The numbers of micro-batches worth trying, ascending, within [fewest, items]. With V equal micro-batches of
// a pipeline the time is about (W/V + c)·(V + PP − 1), least at V = √(W·(PP − 1)/c); splitting weight
// gradients off fills part of the bubble, which lowers it to √(0.6·W·(PP − 1)/c).
std::vector<int> micro_batch_counts(int64_t work_ns, int64_t micro_batch_ns, int pp, int fewest, int items,
                                    Seeds seeds = {});

// kOurs: seeds, of which the schedule says the best. kThorough: more of them, then local search
// (plan/improve.h). kFew: that with a budget for pipelines of few sequences.
enum class PackRule { kOurs, kThorough, kFew };
struct PackOptions {
  PackRule rule = PackRule::kOurs;
  int64_t enough_ns = 0;  // a packing that ends by then is good enough
  Seeds seeds;
  // Of pack_lanes with one stage and pack_passes: only a packing that ends sooner is looked for.
  int64_t below_ns = std::numeric_limits<int64_t>::max();
};
// Up to so many of a pipeline or batch are worth single moves, each packed.
constexpr size_t kFewSequences = 16;

// Micro-batches whose work follows `targets` (relative, in order of injection): the most work first, each to
// the bin furthest below its share among those with room. Nothing when an item finds no room or a bin stays
// empty.
std::optional<Bins> follow(std::span<const PackItem> items, std::span<const int64_t> targets,
                           int64_t capacity_tokens);

struct PackedPipeline {
  strategy::PipelinePlan plan;
  int64_t makespan_ns = 0;  // of the schedule that will run
};

// Packs sequences `members` (indices into `lengths`) for `pipeline`: the fewest micro-batches that fit when
// PP = 1, where more only cost more constants; otherwise several counts, each with even micro-batches in
// descending, ascending and peaked order and with ramped ones (small first and last: fill and drain are paid
// by them). They are timed by the schedule, those with the least lower bounds first, until no
// other can win or one ends by `enough_ns`.
// Pipelines of several lanes are packed by pack_lanes (plan/lanes.h) or pack_passes (plan/pass_packer.h), and
// by both where that pays.
// REQUIRES: every length <= scheme.max_len_tokens().
PackedPipeline pack(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
                    std::span<const int64_t> lengths, std::span<const int> members,
                    const PackOptions& options = {});

}  // namespace sluice::plan

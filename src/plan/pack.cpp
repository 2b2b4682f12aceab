#include "plan/pack.h"

#include <utility>

#include "plan/few_units.h"
#include "plan/improve.h"
#include "plan/lane_stages.h"
#include "plan/one_lane.h"
#include "plan/strip_packer.h"

namespace sluice::plan {
namespace {

struct PackerOf {
  Packer pack;
  bool (*serves)(const strategy::Scheme& scheme);
};

constexpr PackerOf kPackers[] = {
    {pack_one_lane, [](const strategy::Scheme& of) { return of.cp == 1; }},
    {pack_staged_lanes, [](const strategy::Scheme& of) { return of.cp > 1 && of.share == 1 && of.pp > 1; }},
    {pack_strip, [](const strategy::Scheme& of) { return of.cp > 1; }},
};

// By the first that serves; few sequences by all.
std::optional<TimedUnits> pack_by_table(Packing& packing) {
  const PackOptions& options = packing.options;
  int64_t& below_ns = packing.options.below_ns;
  std::optional<TimedUnits> best;
  for (const PackerOf& of : kPackers) {
    if (!of.serves(packing.scheme.scheme())) continue;
    std::optional<TimedUnits> next = of.pack(packing);
    if (next && next->makespan_ns < below_ns) {
      below_ns = next->makespan_ns;
      best = std::move(next);
    }
    if (options.rule != PackRule::kFew || below_ns <= options.enough_ns) break;
  }
  return best;
}

// Cells that the improver may time. Of many sequences on lanes single moves bring too little for what they
// cost to time, few micro-batches in any order are the best of one lane without stages, and passes are left
// as they are.
int64_t most_cells(PackRule rule, const strategy::Scheme& scheme) {
  constexpr int64_t kMost = 8'000;
  if (rule == PackRule::kOurs || scheme.share > 1 || (scheme.cp == 1 && scheme.pp == 1)) return 0;
  return scheme.cp == 1 || rule == PackRule::kFew ? kMost : 0;
}

}  // namespace

std::optional<PackedPipeline> pack(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                   std::span<const int64_t> lengths, std::span<const int> members,
                                   const PackOptions& options) {
  Packing packing(pipeline, scheme, lengths, members, options);
  std::optional<TimedUnits> packed = pack_by_table(packing);
  if (!packed) return std::nullopt;
  const int64_t cells = most_cells(options.rule, scheme.scheme());
  if (cells > 0 && packed->makespan_ns > options.enough_ns) {
    UnitImprover improver(packing);
    improver.improve(*packed, cells);
    if (scheme.scheme().cp > 1) start_from_few_units(packing, cells, improver, *packed);
  }
  return PackedPipeline{packing.timer.plan(std::move(packed->units)), packed->makespan_ns};
}

}  // namespace sluice::plan

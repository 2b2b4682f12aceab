#include "plan/pack.h"

#include <utility>
#include <vector>

#include "plan/few_units.h"
#include "plan/improve.h"
#include "plan/lane_stages.h"
#include "plan/lanes.h"
#include "plan/one_lane.h"
#include "plan/pass_packer.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

struct PackerOf {
  Packer pack;
  bool (*serves)(const strategy::Scheme& scheme);
};

// The one first whose plans mostly end first where each lane has many micro-batches.
constexpr PackerOf kPackers[] = {
    {pack_one_lane, [](const strategy::Scheme& of) { return of.cp == 1; }},
    {pack_lanes, [](const strategy::Scheme& of) { return of.cp > 1 && of.share == 1 && of.pp == 1; }},
    {pack_staged_lanes, [](const strategy::Scheme& of) { return of.cp > 1 && of.share == 1 && of.pp > 1; }},
    {pack_passes, [](const strategy::Scheme& of) { return of.cp > 1; }},
};

// Whether lanes of one stage have so few micro-batches that each should end when the others do.
bool fits_few_passes(const Packing& packing) {
  constexpr int64_t kFew = 2;
  const int64_t tokens = cost::Work::of(packing.lengths).tokens;
  return packing.scheme.scheme().pp == 1 &&
         tokens <= kFew * packing.scheme.lane_max_len_tokens() * packing.lanes();
}

// Where lanes have few micro-batches, even passes are hardly ever beaten. What is to be packed well is packed
// both ways: layers of rings where a step is nearly done, passes where sequences are few. So is what ends far
// from enough, by which a strategy would be given up.
std::optional<TimedUnits> pack_by_table(Packing& packing) {
  std::vector<Packer> packers;
  for (const PackerOf& of : kPackers) {
    if (of.serves(packing.scheme.scheme())) packers.push_back(of.pack);
  }
  const bool passes_first = packers.size() > 1 && fits_few_passes(packing);
  if (passes_first) std::ranges::reverse(packers);
  auto& [rule, enough_ns, seeds, below_ns] = packing.options;
  std::optional<TimedUnits> best;
  for (const Packer packer : packers) {
    std::optional<TimedUnits> next = packer(packing);
    if (next && next->makespan_ns < below_ns) {
      below_ns = next->makespan_ns;
      best = std::move(next);
    }
    const bool far = below_ns - below_ns / kNearPart > enough_ns;
    const bool others = rule == PackRule::kFew || (passes_first && (far || rule == PackRule::kThorough));
    if (!others || below_ns <= enough_ns) break;
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
    if (scheme.scheme().cp > 1 && options.seeds.has(Seed::kFewUnits))
      start_from_few_units(packing, cells, improver, *packed);
  }
  return PackedPipeline{packing.timer.plan(std::move(packed->units)), packed->makespan_ns};
}

}  // namespace sluice::plan

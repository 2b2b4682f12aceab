#include "plan/pack.h"

#include <utility>

#include "plan/few_micro_batches.h"
#include "plan/hide_links.h"
#include "plan/improve.h"
#include "plan/strip_packer.h"

namespace sluice::plan {

std::optional<PackedPipeline> pack(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                   std::span<const int64_t> lengths, std::span<const int> sequences,
                                   const PackOptions& options) {
  constexpr int64_t kMostCells = 8'000;  // budget of local search
  Packing packing(pipeline, scheme, lengths, sequences, options);
  std::optional<TimedMicroBatches> packed = pack_strip(packing);
  if (!packed) return std::nullopt;
  if (options.improves && packed->makespan_ns > options.enough_ns) {
    MicroBatchImprover improver(packing);
    improver.improve(*packed, kMostCells);
    if (packing.lanes() > 1) start_from_few_micro_batches(packing, kMostCells, improver, *packed);
  }
  hide_links(packing, *packed);
  return PackedPipeline{packing.timer.plan(std::move(packed->micro_batches)), packed->makespan_ns};
}

}  // namespace sluice::plan

#include "profile/engine_step_prediction.h"

#include <algorithm>
#include <utility>

#include "cost/analytic.h"
#include "profile/probe.h"
#include "runtime/precision.h"

namespace sluice::profile {
namespace {

constexpr int64_t kLongestText = 2048;

// Enough blocks of each kind that their weights leave a processor's caches between two engine steps, at most
// as many as a stage has. Engine steps of few rows take as long as reading the weights.
int most_blocks(const generate::ModelShard& model) {
  constexpr int64_t kCachesBytes = int64_t{128} << 20;
  constexpr int64_t kFewest = 2;
  const model::Program& program = model.table.program;
  const int64_t own = program.blocks_in(model.run(model.stages.own)).size();
  int64_t elements = 0;
  for (const int bucket : program.buckets_of(program.blocks()))
    elements += model.table.buckets[static_cast<size_t>(bucket)].size;
  const auto element_bytes = static_cast<int64_t>(model.like.dtype().itemsize());
  const int64_t of_block = elements * element_bytes / model.context.parallel.tp / program.blocks().size();
  return static_cast<int>(
      std::clamp(kCachesBytes / std::max<int64_t>(1, of_block) + 1, kFewest, std::max(kFewest, own)));
}

cost::CostModel measured(const generate::ModelShard& model, const strategy::Scheme& scheme,
                         const generate::Sampling& sampling) {
  const comm::DType dtype = runtime::dtype_of(model.like.dtype().toScalarType());
  cost::CostModel::Options options = cost::analytic_options(
      model.context.model, {}, {.element_bytes = comm::size_of(dtype)}, {{scheme.tp}}, 1);
  std::vector<cost::DecodeCost> decoding = probe_decoding({.model = model.context.model,
                                                           .dtype = dtype,
                                                           .device = model.like.device(),
                                                           .longest_tokens = kLongestText,
                                                           .most_blocks = most_blocks(model),
                                                           .sampling = sampling},
                                                          model.context.parallel);
  std::vector<cost::KindCost>& kinds = options.kinds_by_tp.at(scheme.tp);
  for (size_t kind = 0; kind < kinds.size(); ++kind) kinds[kind].decode = std::move(decoding[kind]);
  return cost::CostModel(std::move(options));
}

}  // namespace

EngineStepPrediction::EngineStepPrediction(const generate::ModelShard& model,
                                           const generate::Sampling& sampling)
    : scheme_{.tp = model.context.parallel.tp, .pp = model.stages.count(), .cp = model.lanes.count()},
      cost_(measured(model, scheme_, sampling)),
      clock_(cost_, scheme_, /*level=*/0) {}

}  // namespace sluice::profile

#include "profile/pass_prediction.h"

#include <utility>

#include "cost/analytic.h"
#include "profile/probe.h"
#include "runtime/precision.h"

namespace sluice::profile {
namespace {

constexpr int64_t kLongestText = 2048;

cost::CostModel measured(const generate::HeldModel& model, const strategy::Scheme& scheme,
                         const generate::Sampling& sampling) {
  const model::Shape& shape = model.context.shape;
  const comm::DType dtype = runtime::dtype_of(model.like.dtype().toScalarType());
  cost::CostModel::Options options =
      cost::analytic_options(shape, {}, {.element_bytes = comm::size_of(dtype)}, {{scheme.tp}}, 1);
  std::vector<cost::DecodeCost> decoding = probe_decoding({.shape = shape,
                                                           .dtype = dtype,
                                                           .device = model.like.device(),
                                                           .longest_tokens = kLongestText,
                                                           .sampling = sampling},
                                                          model.context.parallel);
  std::vector<cost::KindCost>& kinds = options.kinds_by_tp.at(scheme.tp);
  for (size_t kind = 0; kind < kinds.size(); ++kind) kinds[kind].decode = std::move(decoding[kind]);
  return cost::CostModel(std::move(options));
}

}  // namespace

PassPrediction::PassPrediction(const generate::HeldModel& model, const generate::Sampling& sampling)
    : scheme_{.tp = model.context.parallel.tp, .pp = model.stages.count(), .cp = model.lanes.count()},
      cost_(measured(model, scheme_, sampling)),
      clock_(cost_, scheme_, /*in_node=*/true) {}

}  // namespace sluice::profile

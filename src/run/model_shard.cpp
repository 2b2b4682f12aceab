#include "run/model_shard.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "inference/layouts.h"
#include "model/program.h"

namespace sluice::run {

using base::InputError;
using base::text;

generate::ModelShard model_shard(const model::ParameterTable& table, runtime::Engine::ModelPart part,
                                 const at::TensorOptions& like) {
  generate::ModelShard model{table, std::move(part.context), std::move(part.weights), like, {}};
  if (part.stage_ranks.size() > 1)
    model.stages = {part.between_stages, std::move(part.stage_ranks), part.stage};
  if (part.lane_ranks.size() > 1) model.lanes = {std::move(part.lane_ranks), part.lane};
  return model;
}

namespace {

strategy::Strategy parsed(const std::string& told, int world_size, const std::string& option) {
  try {
    return strategy::parse_strategy(told, world_size);
  } catch (const InputError& error) {
    throw InputError(text(option, ": ", error.what()));
  }
}

}  // namespace

strategy::Strategy parse_rollout_strategy(const std::string& told, const model::Model& model, int world_size,
                                          const std::string& option) {
  const strategy::Strategy strategy = parsed(told, world_size, option);
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    const std::string apart = inference::lanes_fault(scheme);
    if (!apart.empty()) throw InputError(text(option, " is '", told, "': ", apart));
    const std::string fault = model::cut_fault(model, scheme.tp, scheme.pp, scheme.ep);
    if (!fault.empty()) throw InputError(text(option, " is '", told, "': ", fault));
  }
  if (strategy.ranks() == world_size) return strategy;
  throw InputError(text(option, " is '", told, "', of ", strategy.ranks(), " ranks, but there are ",
                        world_size, ": give pipelines for all of them"));
}

}  // namespace sluice::run

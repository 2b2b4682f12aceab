// What a rank holds of the model that a strategy's pipelines say texts with.
#pragma once

#include <string>

#include "generate/decoder.h"
#include "runtime/engine.h"
#include "strategy/strategy.h"

namespace sluice::run {

// Of what the engine holds.
generate::ModelShard model_shard(const model::ParameterTable& table, runtime::Engine::ModelPart part,
                                 const at::TensorOptions& like);

// InputError naming `option` unless the text's pipelines can say texts, and are of all ranks.
strategy::Strategy parse_rollout_strategy(const std::string& text, const model::Shape& shape, int world_size,
                                          const std::string& option);

}  // namespace sluice::run

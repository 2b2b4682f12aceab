// A rank's part of the model under a strategy whose pipelines generate text.
#pragma once

#include <string>

#include "generate/decoder.h"
#include "runtime/engine.h"
#include "strategy/strategy.h"

namespace sluice::run {

// The shard made of the part that an engine holds.
generate::ModelShard model_shard(const model::ParameterTable& table, runtime::Engine::ModelPart part,
                                 const at::TensorOptions& like);

// InputError naming `option` unless the strategy's pipelines can generate text and cover all ranks.
strategy::Strategy parse_rollout_strategy(const std::string& text, const model::Model& model, int world_size,
                                          const std::string& option);

}  // namespace sluice::run

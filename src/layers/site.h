// The place in a model, and the shards, from which an operation is made.
#pragma once

#include <cstdint>

#include "layers/context.h"
#include "layers/parameters.h"
#include "model/parameters.h"

namespace sluice::layers {

// Borrowed arguments of an operation under construction.
struct Site {
  const LayerContext& context;
  const model::ParameterTable& table;
  int64_t position;
  const FlatShards& weights;
  const FlatShards& gradients;

  // The operation's number among the blocks; -1 for the model's ends.
  int64_t layer() const {
    const base::Interval blocks = table.program.blocks_in({position, position + 1});
    return blocks.empty() ? -1 : position - table.program.blocks().begin;
  }
  OperationShards own_weights() const { return shards(weights, OperationShards::Of::kWeights); }
  OperationShards own_gradients() const { return shards(gradients, OperationShards::Of::kGradients); }
  OperationShards shards(const FlatShards& flats, OperationShards::Of of) const {
    return {table,           position, flats, of, context.cut(layer()), context.low_precision_of(layer()),
            context.parallel};
  }
};

}  // namespace sluice::layers

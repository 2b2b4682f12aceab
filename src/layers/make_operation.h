// Makes the operations that compute the kinds of model/kind.h.
#pragma once

#include <memory>

#include "layers/operation.h"
#include "layers/site.h"

namespace sluice::layers {

// The operation at a position of the program, with views into the shards of its buckets. `context` outlives
// the operation. An empty `gradients` makes an operation for evaluation only.
std::unique_ptr<Operation> make_operation(const LayerContext& context, const model::ParameterTable& table,
                                          int64_t position, const FlatShards& weights,
                                          const FlatShards& gradients);

}  // namespace sluice::layers

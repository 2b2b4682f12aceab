// Routers' corrections (model::Learns::kAsRouterBias) in FP32 for layers that compute in BF16. Compute shards
// have them in BF16, too coarse for scores that differ in later digits: a reader of the exported files would
// choose other experts than training did. These few numbers travel beside pull.
#pragma once

#include <memory>

#include "comm/transport.h"
#include "layers/context.h"
#include "runtime/parameter_store.h"

namespace sluice::runtime {

// The masters' corrections of all layers. Null if compute shards have the same numbers, or the model has
// none. Collective over `control`, which moves host memory between all ranks of the store's world.
std::shared_ptr<const layers::Corrections> router_corrections(const ParameterStore& store,
                                                              comm::Communicator& control);

}  // namespace sluice::runtime

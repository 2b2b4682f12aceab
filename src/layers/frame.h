// A part of a block: a mixer within its frame of norms, products, gathers and the residual stream.
#pragma once

#include <memory>
#include <utility>

#include "layers/mixer.h"
#include "layers/part.h"
#include "layers/site.h"

namespace sluice::layers {

BoundWeights bound(const OperationShards& shards, const Weights& roles);

// `part` must outlive the result, which refers to it.
std::unique_ptr<const Part> make_framed(const Site& site, const model::Part& part, Weights roles,
                                        std::unique_ptr<const Mixer> mixer);

}  // namespace sluice::layers

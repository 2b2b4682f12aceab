// A layer that mixes a few neighbouring rows, in place of attention (LFM2): x + W_out·(c∘conv(b∘v)), with b,
// c and v from norm(x) by one product.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: `part` has a short convolution mixer and outlives the result, which refers to it.
std::unique_ptr<const Part> make_short_convolution(const Site& site, const model::Part& part);

}  // namespace sluice::layers

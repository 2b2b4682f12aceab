// A layer where others have attention that mixes a few neighbouring rows alone (LFM2's): x +
// W_out·(c∘conv(b∘v)), with b, c and v made from norm(x) by one product.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: a part with that mixer, which the result refers to.
std::unique_ptr<const Part> make_short_convolution(const Site& site, const model::Part& part);

}  // namespace sluice::layers

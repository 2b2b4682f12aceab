// The matrices of a model that is written anew in autograd's operators (test_twin.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/parameters.h"

namespace sluice::layers {

// A stored matrix of the operation at `position` with its adapters added, group of rows by group; undefined
// if the operation has none of this role. `flats`: the buckets' values.
at::Tensor stored(const model::ParameterTable& table, int64_t position, const std::vector<at::Tensor>& flats,
                  std::string_view role);

}  // namespace sluice::layers

// Muon (Jordan et al., 2024) on matrices whose rows and columns lie with several owners. Each matrix's
// momentum is gathered by one rank, made orthogonal there and sent back to its owners. Matrices go in
// rounds (link/whole_matrices.h).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/transport.h"
#include "link/whole_matrices.h"
#include "runtime/optimizer.h"

namespace sluice::runtime {

// Approximates the orthogonal matrix nearest to x [A, B] by `steps` Newton-Schulz iterations of fifth order,
// in bfloat16, or in double if x is double. As torch.optim.Muon computes it.
at::Tensor orthogonal(const at::Tensor& x_AB, int64_t steps, double eps);

// One update of all hidden matrices, from summed gradients as update() takes them; update() comes afterwards.
// Collective over the ranks of `world`.
void update_matrices(ParameterStore& store, const AdamW& options, int64_t targets, double gradient_norm,
                     comm::Communicator& world);

}  // namespace sluice::runtime

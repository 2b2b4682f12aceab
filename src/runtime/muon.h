// Muon (Jordan et al., 2024) on matrices whose rows and columns lie with several owners: each matrix's
// momentum is gathered by one rank, made orthogonal there and sent home, one round of matrices after the
// other.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/transport.h"
#include "runtime/optimizer.h"

namespace sluice::runtime {

// One matrix that learns as a whole: a tensor of the model's files, of stacked or fused experts each
// expert's.
struct HiddenMatrix {
  int bucket = 0;
  base::Interval elements;  // of the bucket's flat array
  int64_t rows = 0;         // as it is stored
  int64_t columns = 0;
  bool outputs_last = false;  // stored [in, out]
};
// Of all trained buckets, in their order.
std::vector<HiddenMatrix> hidden_matrices(const model::ParameterTable& table);

// Which rank makes each matrix orthogonal: those that cost most first, each to the rank that has least to do.
std::vector<int> matrix_ranks(const std::vector<HiddenMatrix>& matrices, int ranks);

// The nearest orthogonal matrix, roughly, of x [A, B]: `steps` of Newton and Schulz' iteration of fifth
// order, in bfloat16, or in double if x is. As torch.optim.Muon computes it.
at::Tensor orthogonal(const at::Tensor& x_AB, int64_t steps, double eps);

// One update of all hidden matrices, from summed gradients as update() takes them, which comes behind.
// Collective over the ranks of `world`.
void update_matrices(ParameterStore& store, const AdamW& options, int64_t targets, double gradient_norm,
                     comm::Communicator& world);

}  // namespace sluice::runtime

// Muon (Jordan et al., 2024) on matrices whose rows and columns lie with several owners. Each matrix's
// momentum is gathered by one rank, made orthogonal there and sent back to its owners. Matrices go in
// rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/transport.h"
#include "runtime/optimizer.h"

namespace sluice::runtime {

// One matrix that learns as a whole: a tensor of the model's files; for stacked or fused experts, each
// expert's matrix.
struct HiddenMatrix {
  int bucket = 0;
  base::Interval elements;  // in the bucket's flat array
  int64_t rows = 0;         // as it is stored
  int64_t columns = 0;
  bool outputs_last = false;  // stored [in, out]
};
// The matrices of all trained buckets, in bucket order.
std::vector<HiddenMatrix> hidden_matrices(const model::ParameterTable& table);

// The rank that makes each matrix orthogonal: the most expensive matrix first, to the least loaded rank.
std::vector<int> matrix_ranks(const std::vector<HiddenMatrix>& matrices, int ranks);

// Approximates the orthogonal matrix nearest to x [A, B] by `steps` Newton-Schulz iterations of fifth order,
// in bfloat16, or in double if x is double. As torch.optim.Muon computes it.
at::Tensor orthogonal(const at::Tensor& x_AB, int64_t steps, double eps);

// One update of all hidden matrices, from summed gradients as update() takes them; update() comes afterwards.
// Collective over the ranks of `world`.
void update_matrices(ParameterStore& store, const AdamW& options, int64_t targets, double gradient_norm,
                     comm::Communicator& world);

}  // namespace sluice::runtime

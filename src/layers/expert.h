// One expert at work: an MLP and the rows that are assigned to it.
//
// Row names: T all rows, N rows of one expert, V all assignments in the order of experts. Widths: H hidden, F
// this rank's part of an inner width, G = 2F, or F without a gate.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "base/interval.h"
#include "layers/parameters.h"
#include "layers/product.h"
#include "model/layer.h"
#include "ops/expert_assignments.h"

namespace sluice::layers {

// A matrix of each of a lane's experts, or its gradients, with the experts' adapters.
struct ExpertMatrices {
  at::Tensor w_EAB;
  at::Tensor left_EAK, right_EKB;  // undefined: none, or the gradient of a frozen one
  bool adapted = false;
  double factor = 1;                  // the adapters' scale
  const AdapterMask* rows = nullptr;  // as LowPrecision::rows

  Matrix of(int64_t expert) const;
  // For gradients: those of the adapters alone.
  Matrix adapters_of(int64_t expert) const;
};
// Adds to the trained tensors of an expert's `gradient`; the matrix's own gradient is aᵀ·b.
void add_gradients(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_NA,
                   const at::Tensor& b_NB);

// The matrix of a role, computed in the run's own type even if other products are in low precision.
Matrix exact_matrix(const OperationShards& shards, std::string_view role);
// `own`: the number of experts in the shards.
ExpertMatrices expert_matrices(const OperationShards& shards, std::string_view role, int64_t own);

// A lane's experts.
struct ExpertWeights {
  ExpertMatrices gate_up;      // rows of gate, then of up: x·wᵀ
  ExpertMatrices down;         // each stored [in, out]: a·w
  at::Tensor gate_up_bias_EG;  // undefined: none

  // For gradients: whether any adapter is trained.
  bool adapters_wanted() const {
    const auto wanted = [](const ExpertMatrices& of) {
      return of.left_EAK.defined() || of.right_EKB.defined();
    };
    return wanted(gate_up) || wanted(down);
  }
};

struct Expert {
  Matrix gate_up, down;
  at::Tensor gate_up_bias_G;                  // undefined: none
  at::Tensor row_N;                           // the expert's rows; undefined: all rows, in order
  base::Interval assignments;                 // the expert's interval of V
  int64_t index = 0;                          // among the experts at hand
  const AdapterMask* adapter_rows = nullptr;  // as LowPrecision::rows, for all rows

  at::Tensor rows_of(const at::Tensor& x_TH) const;
  // Adds from_NH to the expert's rows of to_TH.
  void add_to_rows(const at::Tensor& to_TH, const at::Tensor& from_NH) const;
  at::Tensor of_assignments(const at::Tensor& all_VX) const {
    return all_VX.narrow(0, assignments.begin, assignments.size());
  }

  void gate_up_into(const at::Tensor& gate_up_NG, const at::Tensor& x_NH) const;
  // Zeroes in each of the expert's narrow rows the columns of adapters that the row does not use.
  void choose(at::Tensor& narrow_NK) const;
  // W_down·swiglu(gate, up) times the assignments' weights; or the weights multiply gate and up
  // (model::Gate::weighs_input). Undefined weights are all 1.
  at::Tensor result(const model::Gate& gate, const at::Tensor& gate_up_NG, const at::Tensor& weight_N1) const;
  // Overwrites gate and up with their gradients. Sets the gradient of the assignments' weights, if there are
  // weights, and returns the input of the down product.
  at::Tensor backward_of_gate_up(const model::Gate& gate, const at::Tensor& dy_NH,
                                 const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                 at::Tensor& dweight_N1) const;
  // Returns dx of the expert's rows, whose gate and up become their gradients. Sets the gradient of the
  // assignments' weights, if there are weights, and a_NF for the weight gradients.
  at::Tensor backward(const model::Gate& gate, const at::Tensor& dy_NH, const at::Tensor& gate_up_NG,
                      const at::Tensor& weight_N1, at::Tensor& dweight_N1, at::Tensor& a_NF) const;
};

// act(gate, up) times the assignments' weights; or the weights multiply gate and up
// (model::Gate::weighs_input). Undefined weights are all 1.
at::Tensor weighed_activation(const model::Gate& gate, const at::Tensor& gate_up_NG,
                              const at::Tensor& weight_N1);
// From the gradient of its result, which is overwritten. Overwrites gate and up with their gradients, sets
// the gradient of the assignments' weights, if there are weights, and returns the forward's result again.
at::Tensor weighed_activation_backward(const model::Gate& gate, at::Tensor da_NF,
                                       const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                       at::Tensor& dweight_N1);

// Visits this rank's experts that have rows. Assignments to other ranks' experts come last: left out.
template <typename Visit>
void for_each_expert(const ExpertWeights& of, int64_t experts, const ops::ExpertAssignments& visits,
                     Visit visit) {
  for (int64_t e = 0; e < experts; ++e) {
    const base::Interval own{visits.begins[static_cast<size_t>(e)],
                             visits.begins[static_cast<size_t>(e) + 1]};
    if (own.empty()) continue;
    visit(Expert{of.gate_up.of(e), of.down.of(e),
                 of.gate_up_bias_EG.defined() ? of.gate_up_bias_EG[e] : at::Tensor(),
                 visits.row_V.narrow(0, own.begin, own.size()), own, e, of.gate_up.rows});
  }
}

// Whether the rows are so few that one expert's products are too small to divide over a CPU's threads.
inline bool are_few(const ops::ExpertAssignments& visits) {
  constexpr int64_t kFewVisits = 512;
  return visits.row_V.device().is_cpu() && visits.row_V.size(0) <= kFewVisits;
}

// The same; if rows are few, several experts run at once, each on a thread. REQUIRES: calls for different
// experts don't write the same memory.
template <typename Visit>
void for_each_expert_at_once(const ExpertWeights& of, int64_t experts, const ops::ExpertAssignments& visits,
                             Visit visit) {
  if (!are_few(visits)) return for_each_expert(of, experts, visits, visit);
  std::vector<Expert> all;
  for_each_expert(of, experts, visits, [&](const Expert& expert) { all.push_back(expert); });
  at::parallel_for(0, std::ssize(all), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) visit(all[static_cast<size_t>(i)]);
  });
}

void add_column_sums(const at::Tensor& to_X, const at::Tensor& from_NX);

}  // namespace sluice::layers

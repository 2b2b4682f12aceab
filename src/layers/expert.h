// One expert at work: an MLP and the rows that visit it.
//
// Row names: T all rows, N those that visit one expert, V visits in the order of experts. Widths: H hidden, F
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

// A matrix, or its gradient, of each of a lane's experts, with the adapters that each has.
struct ExpertMatrices {
  at::Tensor w_EAB;
  at::Tensor left_EAK, right_EKB;  // undefined: none, or not trained of gradients
  bool adapted = false;
  double factor = 1;                  // of the adapters
  const AdapterMask* rows = nullptr;  // as of LowPrecision

  Matrix of(int64_t expert) const;
  // Of gradients, those of the adapters alone.
  Matrix adapters_of(int64_t expert) const;
};
// Adds to what is wanted of an expert's gradient, that of its matrix being aᵀ·b.
void add_gradients(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_NA,
                   const at::Tensor& b_NB);

// A matrix of the role that is computed as the run does, however narrow other products are.
Matrix exact_matrix(const OperationShards& shards, std::string_view role);
// `own`: how many experts the shards have.
ExpertMatrices expert_matrices(const OperationShards& shards, std::string_view role, int64_t own);

// A lane's experts.
struct ExpertWeights {
  ExpertMatrices gate_up;      // of each rows gate, up: x·wᵀ
  ExpertMatrices down;         // of each stored [in, out]: a·w
  at::Tensor gate_up_bias_EG;  // undefined: none

  // Of gradients.
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
  at::Tensor row_N;                           // who comes; undefined: all rows, in their order
  base::Interval assignments;                 // of V
  int64_t index = 0;                          // of the experts at hand
  const AdapterMask* adapter_rows = nullptr;  // as of LowPrecision, of all rows

  at::Tensor rows_of(const at::Tensor& x_TH) const;
  // To the rows that came.
  void add_to_rows(const at::Tensor& to_TH, const at::Tensor& from_NH) const;
  at::Tensor of_assignments(const at::Tensor& all_VX) const {
    return all_VX.narrow(0, assignments.begin, assignments.size());
  }

  void gate_up_into(const at::Tensor& gate_up_NG, const at::Tensor& x_NH) const;
  // Drops from narrow rows of those that came what belongs to others' adapters.
  void choose(at::Tensor& narrow_NK) const;
  // W_down·swiglu(gate, up) times the visits' weights, which may be undefined: all 1; or gate and up times
  // these (model::Gate::weighs_input).
  at::Tensor result(const model::Gate& gate, const at::Tensor& gate_up_NG, const at::Tensor& weight_N1) const;
  // Takes gate and up to their gradients. Sets that of their weights, where they have some, and returns what
  // the down product took.
  at::Tensor backward_of_gate_up(const model::Gate& gate, const at::Tensor& dy_NH,
                                 const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                 at::Tensor& dweight_N1) const;
  // dx of the rows that came, whose gate and up become their gradients. Sets that of their weights, where
  // they have some, and a_NF to what their weights' gradients need.
  at::Tensor backward(const model::Gate& gate, const at::Tensor& dy_NH, const at::Tensor& gate_up_NG,
                      const at::Tensor& weight_N1, at::Tensor& dweight_N1, at::Tensor& a_NF) const;
};

// Those of this rank's experts that anybody visits; visits of others, which come last, are left out.
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

// Whether so few rows come that products of one expert are too small to be cut over a CPU's threads.
inline bool are_few(const ops::ExpertAssignments& visits) {
  constexpr int64_t kFewVisits = 512;
  return visits.row_V.device().is_cpu() && visits.row_V.size(0) <= kFewVisits;
}

// The same, of few visits several experts at once, on a thread each. REQUIRES: visits of different experts
// don't write the same.
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

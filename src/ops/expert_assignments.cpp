#include "ops/expert_assignments.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>

#include <numeric>

#include "ops/simd.h"

namespace sluice::ops {
namespace aten {

at::Tensor highest(const at::Tensor& score_TE, int64_t k) {
  const auto [sorted, order] = at::sort(score_TE, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  return order.narrow(1, 0, k).to(at::kInt);
}

ExpertAssignments expert_assignments_of(const at::Tensor& id_TK, int64_t experts) {
  const at::Tensor id_V = id_TK.reshape(-1);
  const auto [sorted, slot_V] = at::sort(id_V, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor counts = at::bincount(id_V, {}, experts).cpu();
  ExpertAssignments visits{slot_V.div(id_TK.size(1), "floor"), slot_V, {0}};
  for (int64_t expert = 0; expert < experts; ++expert)
    visits.begins.push_back(visits.begins.back() + counts.const_data_ptr<int64_t>()[expert]);
  return visits;
}

void add_to_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH) {
  at::Tensor target_TH = to_TH;
  target_TH.index_add_(0, row_N, from_NH);
}

}  // namespace aten

namespace {

constexpr int64_t kVisitGrain = 32768;

// One pass over the scores per chosen expert: k is small.
template <typename S>
void choose_highest(const S* score, int64_t experts, int64_t k, int32_t* ids) {
  for (int64_t slot = 0; slot < k; ++slot) {
    int32_t best = -1;
    for (int32_t expert = 0; expert < experts; ++expert) {
      const bool taken = std::find(ids, ids + slot, expert) != ids + slot;
      // NaN is above nothing, but some expert is always chosen.
      if (!taken && (best < 0 || score[expert] > score[best])) best = expert;
    }
    ids[slot] = best;
  }
}

template <typename S>
void add_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH) {
  const int64_t width = to_TH.size(1);
  S* const to = to_TH.mutable_data_ptr<S>();
  const S* const from = from_NH.const_data_ptr<S>();
  const int64_t* const rows = row_N.const_data_ptr<int64_t>();
  at::parallel_for(0, row_N.size(0), kVisitGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      S* const target = to + rows[i] * width;
      const S* const source = from + i * width;
#pragma omp simd
      for (int64_t column = 0; column < width; ++column) target[column] += source[column];
    }
  });
}

}  // namespace

at::Tensor highest(const at::Tensor& score_TE, int64_t k) {
  if (!is_dense_cpu(score_TE)) return aten::highest(score_TE, k);
  const int64_t rows = score_TE.size(0), experts = score_TE.size(1);
  at::Tensor id_TK = at::empty({rows, k}, score_TE.options().dtype(at::kInt));
  auto* const ids = id_TK.mutable_data_ptr<int32_t>();
  SLUICE_DISPATCH(score_TE, "highest", [&] {
    const auto* const scores = score_TE.const_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kVisitGrain / (experts * k) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        choose_highest(scores + row * experts, experts, k, ids + row * k);
    });
  });
  return id_TK;
}

ExpertAssignments expert_assignments_of(const at::Tensor& id_TK, int64_t experts) {
  if (!is_dense_cpu(id_TK)) return aten::expert_assignments_of(id_TK, experts);
  const int64_t count = id_TK.numel(), k = id_TK.size(1);
  const auto* const ids = id_TK.const_data_ptr<int32_t>();
  ExpertAssignments visits{at::empty({count}, at::kLong), at::empty({count}, at::kLong), {}};
  visits.begins.assign(static_cast<size_t>(experts) + 1, 0);
  for (int64_t slot = 0; slot < count; ++slot) ++visits.begins[static_cast<size_t>(ids[slot]) + 1];
  std::partial_sum(visits.begins.begin(), visits.begins.end(), visits.begins.begin());
  std::vector<int64_t> next(visits.begins.begin(), visits.begins.end() - 1);
  auto* const rows = visits.row_V.mutable_data_ptr<int64_t>();
  auto* const slots = visits.slot_V.mutable_data_ptr<int64_t>();
  for (int64_t slot = 0; slot < count; ++slot) {
    const int64_t place = next[static_cast<size_t>(ids[slot])]++;
    rows[place] = slot / k;
    slots[place] = slot;
  }
  return visits;
}

void add_to_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH) {
  const bool dense = is_dense_cpu(to_TH) && is_dense_cpu(row_N) && is_dense_cpu(from_NH);
  if (!dense) return aten::add_to_rows(to_TH, row_N, from_NH);
  SLUICE_DISPATCH(to_TH, "add_to_rows", [&] { add_rows<scalar_t>(to_TH, row_N, from_NH); });
}

}  // namespace sluice::ops

#include "layers/pending_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include "layers/part.h"
#include "ops/expert_assignments.h"

namespace sluice::layers {

int PendingProducts::keep(at::Tensor rows, at::Tensor gathered) {
  rows_.push_back({std::move(rows), std::move(gathered), 0});
  return static_cast<int>(rows_.size()) - 1;
}

void PendingProducts::product(int slot, Side a, Side b, std::vector<AdapterRows> narrow) {
  use(a);
  use(b);
  products_.push_back({Kind::kProduct, slot, a, b, std::move(narrow)});
}

void PendingProducts::visits(int slot, Side a, Side b, at::Tensor id_TK, int64_t experts, int64_t own) {
  use(a);
  use(b);
  int ids = -1;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].own.is_same(id_TK)) ids = static_cast<int>(i);
  }
  if (ids < 0) ids = keep(std::move(id_TK));
  use({ids});
  products_.push_back({Kind::kVisits, slot, a, b, {}, ids, experts, own});
}

void PendingProducts::column_sums(int slot, Side a) {
  use(a);
  products_.push_back({Kind::kColumnSums, slot, a, {}, {}});
}

void PendingProducts::made(int slot, at::Tensor gradient) { made_.push_back({slot, std::move(gradient)}); }

void PendingProducts::drop_gathered() {
  for (Rows& rows : rows_) rows.gathered.reset();
}

at::Tensor PendingProducts::taken(Side side, const TensorParallel& parallel) {
  Rows& rows = rows_[static_cast<size_t>(side.rows)];
  if (side.gathered && !rows.gathered.defined()) rows.gathered = parallel.all_gather_rows(rows.own);
  const at::Tensor& all = side.gathered ? rows.gathered : rows.own;
  return (side.columns.empty() ? all : all.narrow(1, side.columns.begin, side.columns.size())).contiguous();
}

void PendingProducts::release(Side side) {
  Rows& rows = rows_[static_cast<size_t>(side.rows)];
  if (--rows.uses == 0) rows = {};
}

void PendingProducts::add_visits(const Product& product, const Matrix& gradient,
                                 const TensorParallel& parallel) {
  const ops::ExpertAssignments visits =
      ops::expert_assignments_of(rows_[static_cast<size_t>(product.ids)].own, product.experts);
  const at::Tensor a_VX = taken(product.a, parallel), b_TY = taken(product.b, parallel);
  const at::Tensor all_EXY = gradient.w_AB.view({product.own, -1, gradient.w_AB.size(-1)});
  for (int64_t expert = 0; expert < product.own; ++expert) {
    const auto at = static_cast<size_t>(expert);
    const base::Interval own{visits.begins[at], visits.begins[at + 1]};
    if (own.empty()) continue;
    accumulate_gradient(all_EXY[expert], a_VX.narrow(0, own.begin, own.size()),
                        b_TY.index_select(0, visits.row_V.narrow(0, own.begin, own.size())));
  }
}

void PendingProducts::add_to(std::span<const Matrix> gradients, const TensorParallel& parallel) {
  const auto of = [&](int slot) -> const Matrix& { return gradients[static_cast<size_t>(slot)]; };
  for (const auto& [slot, gradient] : made_) at::Tensor(of(slot).w_AB).add_(gradient);
  made_.clear();
  for (Product& product : products_) {
    const Matrix& gradient = of(product.slot);
    if (product.kind == Kind::kProduct) {
      accumulate_gradient(gradient, product.narrow, taken(product.a, parallel), taken(product.b, parallel));
    } else if (product.kind == Kind::kVisits) {
      add_visits(product, gradient, parallel);
    } else {
      const at::Tensor bias = gradient.w_AB.view(-1);
      bias.add_(taken(product.a, parallel).sum(0, /*keepdim=*/false, bias.scalar_type()));
    }
    product.narrow.clear();
    release(product.a);
    if (product.b.rows >= 0) release(product.b);
    if (product.ids >= 0) release({product.ids});
  }
  products_.clear();
}

std::vector<SavedRows> PendingProducts::rows() {
  std::vector<SavedRows> all;
  for (Rows& rows : rows_) {
    all.push_back({rows.own});
    all.push_back({rows.gathered});
  }
  for (Product& product : products_) add_rows(product.narrow, all);
  for (Made& made : made_) all.push_back({made.gradient});
  return all;
}

}  // namespace sluice::layers

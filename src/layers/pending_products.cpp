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

void PendingProducts::visits(int slot, Side a, Side b, const Visited& visited) {
  use(a);
  use(b);
  int ids = -1;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].own.is_same(visited.id_TK)) ids = static_cast<int>(i);
  }
  if (ids < 0) ids = keep(visited.id_TK);
  use({ids});
  products_.push_back(
      {Kind::kVisits, slot, a, b, {}, ids, {{}, visited.experts, visited.own, visited.grouped}});
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
                                 const TensorParallel& parallel, Grouped& known) {
  const at::Tensor& id_TK = rows_[static_cast<size_t>(product.ids)].own;
  const Visited& visited = product.visited;
  const at::Tensor a_VX = taken(product.a, parallel), b_TY = taken(product.b, parallel);
  const at::Tensor all_EXY = gradient.w_AB.view({visited.own, -1, gradient.w_AB.size(-1)});
  if (visited.grouped) {
    if (known.ids != product.ids) known = {product.ids, ops::grouped_rows_of(id_TK, visited.own)};
    ops::add_grouped_gradient(all_EXY, a_VX, b_TY.index_select(0, known.rows.row_V), known.rows.end_G);
    return;
  }
  const ops::ExpertAssignments visits = ops::expert_assignments_of(id_TK, visited.experts);
  for (int64_t expert = 0; expert < visited.own; ++expert) {
    const auto at = static_cast<size_t>(expert);
    const base::Interval own{visits.begins[at], visits.begins[at + 1]};
    if (own.empty()) continue;
    accumulate_gradient(all_EXY[expert], a_VX.narrow(0, own.begin, own.size()),
                        b_TY.index_select(0, visits.row_V.narrow(0, own.begin, own.size())));
  }
}

void PendingProducts::add_to(std::span<const Matrix> gradients, const TensorParallel& parallel) {
  const auto of = [&](int slot) -> const Matrix& { return gradients[static_cast<size_t>(slot)]; };
  Grouped known;
  for (const auto& [slot, gradient] : made_) at::Tensor(of(slot).w_AB).add_(gradient);
  made_.clear();
  for (Product& product : products_) {
    const Matrix& gradient = of(product.slot);
    if (product.kind == Kind::kProduct) {
      accumulate_gradient(gradient, product.narrow, taken(product.a, parallel), taken(product.b, parallel));
    } else if (product.kind == Kind::kVisits) {
      add_visits(product, gradient, parallel, known);
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

// V: rows in the order of groups, G: groups, A and B: the two widths of a matrix.
//
// y = x·w by group:  dx = dy·wᵀ, dw = xᵀ·dy, by group again.
#include "ops/grouped_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_embedding_bag_forward_only.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "ops/linear.h"
#ifdef SLUICE_CUDA
#include "ops/libraries/grouped_mm.h"
#endif

namespace sluice::ops {
namespace aten {

at::Tensor grouped_product(const at::Tensor& x_VA, const at::Tensor& w_GAB, const at::Tensor& end_G) {
  return at::_grouped_mm(x_VA, w_GAB, end_G);
}

void add_grouped_gradient(const at::Tensor& gradient_GAB, const at::Tensor& a_VA, const at::Tensor& b_VB,
                          const at::Tensor& end_G, int64_t most_bytes) {
  constexpr int64_t kAligned = 8;  // columns of 16 bytes
  const int64_t width = a_VA.size(1),
                column = gradient_GAB.size(0) * b_VB.size(1) * static_cast<int64_t>(b_VB.element_size());
  const int64_t step = std::max(kAligned, most_bytes / column / kAligned * kAligned);
  for (int64_t begin = 0; begin < width; begin += step) {
    const int64_t some = std::min(step, width - begin);
    gradient_GAB.narrow(1, begin, some).add_(at::_grouped_mm(a_VA.narrow(1, begin, some).t(), b_VB, end_G));
  }
}

}  // namespace aten

namespace {

// Group by group. Calls visit(group, begin, size) for each group that has rows; `end_G`: in host memory.
template <typename Visit>
void for_each_group(const at::Tensor& end_G, Visit visit) {
  const auto* const ends = end_G.const_data_ptr<int32_t>();
  int64_t begin = 0;
  for (int64_t group = 0; group < end_G.size(0); ++group) {
    if (ends[group] > begin) visit(group, begin, ends[group] - begin);
    begin = ends[group];
  }
}

at::Tensor product_by_group(const at::Tensor& x_VA, const at::Tensor& w_GAB, const at::Tensor& end_G) {
  at::Tensor y_VB = at::empty({x_VA.size(0), w_GAB.size(2)}, x_VA.options());
  for_each_group(end_G, [&](int64_t group, int64_t begin, int64_t size) {
    at::Tensor target = y_VB.narrow(0, begin, size);
    at::mm_out(target, x_VA.narrow(0, begin, size), w_GAB[group]);
  });
  return y_VB;
}

void add_gradient_by_group(const at::Tensor& gradient_GAB, const at::Tensor& a_VA, const at::Tensor& b_VB,
                           const at::Tensor& end_G) {
  for_each_group(end_G, [&](int64_t group, int64_t begin, int64_t size) {
    accumulate_weight_gradient(gradient_GAB[group], a_VA.narrow(0, begin, size), b_VB.narrow(0, begin, size));
  });
}

// Other devices than CUDA's take each product as one operator, which runs on them as their other operators
// do.
TORCH_LIBRARY_FRAGMENT(sluice, library) {
  library.def("grouped_product(Tensor x, Tensor w, Tensor end) -> Tensor");
  library.def("add_grouped_gradient(Tensor(a!) gradient, Tensor a, Tensor b, Tensor end) -> ()");
}
TORCH_LIBRARY_IMPL(sluice, CPU, library) {
  library.impl("grouped_product", &product_by_group);
  library.impl("add_grouped_gradient", &add_gradient_by_group);
}

template <typename Signature>
c10::TypedOperatorHandle<Signature> operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

#ifdef SLUICE_CUDA
// A bound of products that are rounded and not added yet.
constexpr int64_t kMostRoundedBytes = int64_t{128} << 20;
#endif

}  // namespace

GroupedRows grouped_rows_of(const at::Tensor& id_TK, int64_t groups) {
  const at::Tensor id_V = id_TK.reshape(-1);
  GroupedRows rows;
  std::tie(rows.group_V, rows.slot_V) = at::sort(id_V, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  rows.row_V = rows.slot_V.div(id_TK.size(1), "floor");
  rows.end_G = at::searchsorted(rows.group_V, at::arange(groups, id_V.options()), /*out_int32=*/true,
                                /*right=*/true);
  rows.place_TK =
      std::get<1>(at::sort(rows.row_V, /*stable=*/true, /*dim=*/0, /*descending=*/false)).view(id_TK.sizes());
  return rows;
}

// ATen's count on a GPU waits: its result could be longer.
at::Tensor counts_of(const at::Tensor& ids, int64_t count) {
  const at::Tensor flat = ids.reshape(-1);
  if (flat.is_cpu()) return at::bincount(flat, {}, count);
  const at::Tensor index = flat.to(at::kLong);
  return at::zeros({count}, index.options()).scatter_add_(0, index, at::ones_like(index));
}

bool grouped_products_wait([[maybe_unused]] const at::Tensor& x_VA,
                           [[maybe_unused]] const at::Tensor& w_GAB) {
#ifdef SLUICE_CUDA
  if (x_VA.is_cuda()) return !grouped_mm::takes(x_VA, w_GAB, w_GAB.size(0));
#endif
  return false;
}

at::Tensor grouped_product(const at::Tensor& x_VA, const at::Tensor& w_GAB, const at::Tensor& end_G) {
  if (x_VA.is_cpu()) return product_by_group(x_VA, w_GAB, end_G);
  if (x_VA.size(0) == 0) return at::empty({0, w_GAB.size(2)}, x_VA.options());
#ifdef SLUICE_CUDA
  if (x_VA.is_cuda()) {
    return grouped_mm::takes(x_VA, w_GAB, w_GAB.size(0)) ? aten::grouped_product(x_VA, w_GAB, end_G)
                                                         : product_by_group(x_VA, w_GAB, end_G.cpu());
  }
#endif
  static const auto by_group = operator_of<decltype(product_by_group)>("sluice::grouped_product");
  return by_group.call(x_VA, w_GAB, end_G);
}

void add_grouped_gradient(const at::Tensor& gradient_GAB, const at::Tensor& a_VA, const at::Tensor& b_VB,
                          const at::Tensor& end_G) {
  if (a_VA.is_cpu()) return add_gradient_by_group(gradient_GAB, a_VA, b_VB, end_G);
  if (a_VA.size(0) == 0) return;
#ifdef SLUICE_CUDA
  if (a_VA.is_cuda()) {
    return grouped_mm::takes(a_VA, b_VB, end_G.size(0))
               ? aten::add_grouped_gradient(gradient_GAB, a_VA, b_VB, end_G, kMostRoundedBytes)
               : add_gradient_by_group(gradient_GAB, a_VA, b_VB, end_G.cpu());
  }
#endif
  static const auto by_group = operator_of<decltype(add_gradient_by_group)>("sluice::add_grouped_gradient");
  by_group.call(gradient_GAB, a_VA, b_VB, end_G);
}

// Places that are left out read the last row and have the weight 0.
at::Tensor sums_by_row(const at::Tensor& y_VB, const at::Tensor& place_TK) {
  constexpr int64_t kSum = 0;
  const int64_t places = place_TK.numel(), own = y_VB.size(0);
  if (own == 0) return at::zeros({place_TK.size(0), y_VB.size(1)}, y_VB.options());
  at::Tensor place_V = place_TK.reshape(-1), weight_V;
  if (own < places) {
    weight_V = (place_V < own).to(y_VB.scalar_type());
    place_V = place_V.clamp_max(own - 1);
  }
  const at::Tensor begin_T = at::arange(0, places, place_TK.size(1), place_V.options());
  return std::get<0>(at::_embedding_bag_forward_only(
      y_VB, place_V, begin_T, /*scale_grad_by_freq=*/false, kSum, /*sparse=*/false,
      weight_V.defined() ? std::optional(weight_V) : std::nullopt));
}

}  // namespace sluice::ops

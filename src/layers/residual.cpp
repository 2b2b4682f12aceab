#include "layers/residual.h"

#include "ops/linear.h"

namespace sluice::layers {

at::Tensor add_product(const TensorParallel& parallel, const at::Tensor& x_SH, const at::Tensor& a_TA,
                       const at::Tensor& w_AH) {
  if (parallel.tp == 1) return ops::add_times(x_SH, a_TA, w_AH);
  return parallel.reduce_scatter_rows(ops::times(a_TA, w_AH)).add_(x_SH);
}

}  // namespace sluice::layers

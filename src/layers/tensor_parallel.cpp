#include "layers/tensor_parallel.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {
namespace {

comm::DType wire_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return comm::DType::kFloat32;
    case at::kDouble: return comm::DType::kFloat64;
    case at::kBFloat16: return comm::DType::kBFloat16;
    default: break;
  }
  SLUICE_ASSERT(false, base::text("no communication type for ", at::toString(tensor.scalar_type())));
}

at::Tensor empty_with_rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, like.options());
}

}  // namespace

at::Tensor TensorParallel::all_gather_rows(const at::Tensor& shard) const {
  if (tp == 1) return shard;
  const at::Tensor source = shard.contiguous();
  at::Tensor full = empty_with_rows(source, source.size(0) * tp);
  const int64_t bytes = static_cast<int64_t>(source.nbytes());
  group->all_gather(source.const_data_ptr(), full.mutable_data_ptr(), bytes)->wait();
  return full;
}

at::Tensor TensorParallel::reduce_scatter_rows(const at::Tensor& partial) const {
  if (tp == 1) return partial;
  SLUICE_ASSERT(partial.size(0) % tp == 0, base::text(partial.size(0), " rows on ", tp, " TP ranks"));
  const at::Tensor source = partial.contiguous();
  at::Tensor shard = empty_with_rows(source, source.size(0) / tp);
  group->reduce_scatter(source.const_data_ptr(), shard.mutable_data_ptr(), shard.numel(), wire_type(source))
      ->wait();
  return shard;
}

}  // namespace sluice::layers

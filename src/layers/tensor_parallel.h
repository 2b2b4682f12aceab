// Tensor parallelism with sequence parallelism. Between layers a micro-batch's rows are cut evenly over the
// TP ranks ("shards"). Inside a layer every rank has all rows and a cut of the heads or widths.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/interval.h"
#include "comm/transport.h"

namespace sluice::layers {

// One rank's place in its TP group. The communicator is borrowed and may be null when tp is 1.
struct TensorParallel {
  comm::Communicator* group = nullptr;
  int tp = 1;
  int t = 0;

  // The rows of all ranks in rank order, [tp·r, …], from this rank's [r, …]. With tp = 1 the tensor itself.
  // REQUIRES: equal r on all ranks. Throws what the communicator throws.
  at::Tensor all_gather_rows(const at::Tensor& shard) const;

  // This rank's rows [t·r, (t+1)·r) of the sum of all ranks' partial results [tp·r, …], added in rank order.
  // With tp = 1 the tensor itself.
  at::Tensor reduce_scatter_rows(const at::Tensor& partial) const;

  // This rank's interval of a micro-batch of `rows` rows. REQUIRES: a multiple of tp.
  base::Interval shard_rows(int64_t rows) const { return {t * (rows / tp), (t + 1) * (rows / tp)}; }
};

}  // namespace sluice::layers

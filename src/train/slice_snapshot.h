// Owner slices as they are at one moment, for who writes them while the next step changes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "checkpoint/save.h"
#include "cost/snapshot_cost.h"
#include "runtime/parameter_store.h"

namespace sluice::train {

// Host memory for one copy (pinned for a GPU's), made at the first take() and kept: it is no tensors' as
// ops/tensor_memory.h counts them. Not thread-safe.
class SliceSnapshot {
 public:
  // Copies a rank's slices, from a GPU on a stream of its own. Nobody may change them meanwhile. The result
  // points into this object until the next take(). What is not trained is copied from a GPU once, and on a
  // CPU never: it stays as it is.
  std::vector<checkpoint::OwnerState> take(const runtime::ParameterStore& store);
  // No copy where the slices lie in host memory already: for who waits until the save has ended.
  std::vector<checkpoint::OwnerState> view(const runtime::ParameterStore& store);

  // What a snapshot of this rank's takes.
  static int64_t bytes(const model::ParameterTable& table, const runtime::Precision& precision,
                       int world_size, int rank);

 private:
  void make_room(const runtime::ParameterStore& store);

  std::vector<at::Tensor> copies_;  // by bucket: master, exp_avg, exp_avg_sq
};

// Copies a rank's slices end to end into memory that takes SliceSnapshot::bytes: of each bucket the masters,
// then, if it is trained, the first and the second moments. From a GPU on a stream of its own; returns when
// they are there.
void copy_slices(const runtime::ParameterStore& store, char* bytes);

}  // namespace sluice::train

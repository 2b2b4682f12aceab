#include "train/slice_snapshot.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "link/layout.h"

namespace sluice::train {

namespace {

std::array<at::Tensor, 3> states_of(const runtime::OwnerSlice& slice) {
  return {slice.master, slice.exp_avg, slice.exp_avg_sq};
}

// A bucket that is not trained has no moments, whatever empty tensors point to.
checkpoint::OwnerState state_of(const model::Bucket& bucket, const runtime::OwnerSlice& slice,
                                const void* master, const void* exp_avg, const void* exp_avg_sq) {
  return {slice.owned, master, bucket.trained ? exp_avg : nullptr, bucket.trained ? exp_avg_sq : nullptr};
}

at::Tensor room_for(const at::Tensor& tensor) {
  if (tensor.is_cuda()) {
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  }
  void* bytes = std::malloc(std::max<size_t>(1, tensor.nbytes()));
  if (bytes == nullptr) {
    throw base::RunError(base::text("no host memory for a snapshot of ",
                                    base::human_bytes(static_cast<double>(tensor.nbytes())),
                                    ": set checkpoint.async = false, which needs none"));
  }
  return at::from_blob(bytes, tensor.sizes(), &std::free, tensor.options());
}

// Work of the calling thread goes to a stream of its own, and is done when this ends.
class OwnStream {
 public:
  explicit OwnStream(c10::Device device) {
    if (device.is_cpu()) return;
    guard_.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
  }
  ~OwnStream() {
    if (guard_) guard_->current_stream().synchronize();
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace

void SliceSnapshot::make_room(const runtime::ParameterStore& store) {
  if (!copies_.empty()) return;
  std::vector<at::Tensor> copies;
  for (const model::Bucket& bucket : store.table().buckets) {
    const bool stays = !bucket.trained && store.options().device.is_cpu();
    for (const at::Tensor& state : states_of(store.owner(bucket.index))) {
      copies.push_back(stays ? state : room_for(state));
      if (!stays && !bucket.trained) copies.back().copy_(state);
    }
  }
  copies_ = std::move(copies);
}

std::vector<checkpoint::OwnerState> SliceSnapshot::take(const runtime::ParameterStore& store) {
  const OwnStream stream(store.options().device);  // also makes that device this thread's
  make_room(store);
  std::vector<checkpoint::OwnerState> states;
  auto copy = copies_.begin();
  for (const model::Bucket& bucket : store.table().buckets) {
    const runtime::OwnerSlice& slice = store.owner(bucket.index);
    const auto copied = [&](const at::Tensor& state) -> const void* {
      if (bucket.trained && state.is_cpu()) {  // not copy_, which would take the threads that compute
        std::memcpy(copy->mutable_data_ptr(), state.const_data_ptr(), state.nbytes());
      } else if (bucket.trained) {
        copy->copy_(state, /*non_blocking=*/true);
      }
      return (copy++)->const_data_ptr();
    };
    const void* master = copied(slice.master);
    const void* exp_avg = copied(slice.exp_avg);
    const void* exp_avg_sq = copied(slice.exp_avg_sq);
    states.push_back(state_of(bucket, slice, master, exp_avg, exp_avg_sq));
  }
  return states;
}

void copy_slices(const runtime::ParameterStore& store, char* bytes) {
  const OwnStream stream(store.options().device);
  for (const model::Bucket& bucket : store.table().buckets) {
    for (const at::Tensor& state : states_of(store.owner(bucket.index))) {
      if (state.is_cpu()) {
        std::memcpy(bytes, state.const_data_ptr(), state.nbytes());
      } else {
        at::from_blob(bytes, state.sizes(), state.options().device(at::kCPU)).copy_(state);
      }
      bytes += state.nbytes();
    }
  }
}

std::vector<checkpoint::OwnerState> SliceSnapshot::view(const runtime::ParameterStore& store) {
  if (!store.options().device.is_cpu()) return take(store);
  std::vector<checkpoint::OwnerState> states;
  for (const model::Bucket& bucket : store.table().buckets) {
    const runtime::OwnerSlice& slice = store.owner(bucket.index);
    states.push_back(state_of(bucket, slice, slice.master.const_data_ptr(), slice.exp_avg.const_data_ptr(),
                              slice.exp_avg_sq.const_data_ptr()));
  }
  return states;
}

int64_t SliceSnapshot::bytes(const model::ParameterTable& table, const runtime::Precision& precision,
                             int world_size, int rank) {
  int64_t elements = 0;
  for (const model::Bucket& bucket : table.buckets) {
    elements +=
        cost::owner_numbers(bucket.trained) * link::OwnerLayout{world_size}.owned(bucket, rank).size();
  }
  return elements * comm::size_of(precision.master());
}

}  // namespace sluice::train

#include "run/slice_snapshot.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "link/layout.h"

namespace sluice::run {

namespace {

// The states, as wide as the optimizer computes, however masters and moments are stored.
std::array<at::Tensor, 3> states_of(const runtime::OwnerSlice& slice) {
  return {runtime::wide_master(slice), slice.exp_avg.read(), slice.exp_avg_sq.read()};
}

size_t states_bytes(const runtime::ParameterStore& store, int bucket) {
  const runtime::OwnerSlice& slice = store.owner(bucket);
  const int64_t numbers = slice.master.numel() + slice.exp_avg.numel() + slice.exp_avg_sq.numel();
  return static_cast<size_t>(numbers * comm::size_of(store.options().precision.master()));
}

// A bucket that is not trained has no moments, even if empty tensors have addresses.
checkpoint::OwnerState state_of(const model::Bucket& bucket, const runtime::OwnerSlice& slice,
                                const void* master, const void* exp_avg, const void* exp_avg_sq) {
  return {slice.owned, master, bucket.trained ? exp_avg : nullptr, bucket.trained ? exp_avg_sq : nullptr};
}

// A frozen slice in host memory is read in place, unless it is stored as bfloat16.
bool stays(const runtime::ParameterStore& store, const model::Bucket& bucket) {
  const bool as_wide = store.owner(bucket.index).master.scalar_type() != at::kBFloat16;
  return !bucket.trained && store.options().device.is_cpu() && as_wide;
}

// Memory whose pages are touched, in large pages if the system has them, so that copies need not wait.
at::Tensor host_memory(int64_t bytes, bool pinned) {
  const auto options = at::TensorOptions().dtype(c10::ScalarType::Byte);
  if (pinned) return at::empty({bytes}, options.pinned_memory(true));
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t whole = (static_cast<size_t>(bytes) / kLargePage + 1) * kLargePage;
  void* memory = std::aligned_alloc(kLargePage, whole);
  if (memory == nullptr) {
    throw base::RunError(base::text("no host memory for a snapshot of ",
                                    base::human_bytes(static_cast<double>(bytes)),
                                    ": set checkpoint.async = false, which needs none"));
  }
  ::madvise(memory, whole, MADV_HUGEPAGE);  // a hint
  std::memset(memory, 0, whole);
  return at::from_blob(memory, {bytes}, &std::free, options);
}

// libtorch has few streams and reuses them in turn: all snapshots of a GPU share one, taken once.
c10::Stream snapshot_stream(c10::Device device) {
  static std::mutex drawing;
  static std::map<c10::DeviceIndex, c10::Stream> drawn;
  const std::lock_guard guard(drawing);
  const auto found = drawn.find(device.index());
  if (found != drawn.end()) return found->second;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return drawn.emplace(device.index(), stream).first->second;
}

// Directs the calling thread's work to the snapshot stream; the destructor waits for the work.
class OwnStream {
 public:
  explicit OwnStream(c10::Device device) {
    if (!device.is_cpu()) guard_.emplace(snapshot_stream(device));
  }
  ~OwnStream() { wait(); }

  // Returns when all work on the stream is done.
  void wait() const {
    if (guard_) guard_->current_stream().synchronize();
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

// On the CPU without copy_, which would occupy the threads that compute.
void copy_state(const at::Tensor& state, char* bytes) {
  if (state.is_cpu()) {
    std::memcpy(bytes, state.const_data_ptr(), state.nbytes());
  } else {
    at::from_blob(bytes, state.sizes(), state.options().device(at::kCPU)).copy_(state, /*non_blocking=*/true);
  }
}

}  // namespace

void ReadProgress::advance_to(int read) {
  read_ = read;
  read_.notify_all();
}

void ReadProgress::wait(int bucket) const {
  for (int read = read_; read <= bucket; read = read_) read_.wait(read);
}

void SliceSnapshot::make_room(const runtime::ParameterStore& store) {
  size_t bytes = 0;
  for (const model::Bucket& bucket : store.table().buckets) {
    if (stays(store, bucket)) continue;
    bytes += states_bytes(store, bucket.index);
  }
  const bool pinned = !store.options().device.is_cpu();
  room_ = std::async(std::launch::async, host_memory, static_cast<int64_t>(bytes), pinned);
}

std::vector<checkpoint::OwnerState> SliceSnapshot::take(const runtime::ParameterStore& store,
                                                        ReadProgress& progress) {
  const OwnStream stream(store.options().device);  // also makes that device this thread's
  const bool first = !memory_.defined();
  if (first) {
    if (!room_.valid()) make_room(store);
    memory_ = room_.get();
  }
  std::vector<checkpoint::OwnerState> states;
  char* next = static_cast<char*>(memory_.mutable_data_ptr());
  for (const model::Bucket& bucket : store.table().buckets) {
    const runtime::OwnerSlice& slice = store.owner(bucket.index);
    const auto copied = [&](const at::Tensor& state) -> const void* {
      if (stays(store, bucket)) return state.const_data_ptr();
      if (bucket.trained || first) copy_state(state, next);
      return std::exchange(next, next + state.nbytes());
    };
    std::array<const void*, 3> copies{};
    std::ranges::transform(states_of(slice), copies.begin(), copied);
    states.push_back(state_of(bucket, slice, copies[0], copies[1], copies[2]));
    stream.wait();
    progress.set_read(bucket.index);
  }
  return states;
}

void copy_slices(const runtime::ParameterStore& store, char* bytes) {
  const OwnStream stream(store.options().device);
  for (const model::Bucket& bucket : store.table().buckets) {
    if (!bucket.trained) continue;
    for (const at::Tensor& state : states_of(store.owner(bucket.index))) {
      copy_state(state, bytes);
      bytes += state.nbytes();
    }
  }
  for (const model::Bucket& bucket : store.table().buckets) {
    if (cost::followed_numbers(bucket.trained, store.options().pull) == 0) continue;
    const at::Tensor copy =
        store.compute_copy(bucket.index).to(runtime::scalar_type(store.options().precision.master()));
    copy_state(copy, bytes);
    bytes += copy.nbytes();
    stream.wait();  // before the memory of the wide copy goes
  }
}

std::vector<checkpoint::OwnerState> SliceSnapshot::view(const runtime::ParameterStore& store) {
  const bool all_wide = store.options().moments == base::MomentFormat::kWide &&
                        std::ranges::all_of(store.table().buckets, [&](const model::Bucket& bucket) {
                          return store.owner(bucket.index).master.scalar_type() != at::kBFloat16;
                        });
  if (!store.options().device.is_cpu() || !all_wide) {
    ReadProgress nobody_waits;
    return take(store, nobody_waits);
  }
  std::vector<checkpoint::OwnerState> states;
  for (const model::Bucket& bucket : store.table().buckets) {
    const runtime::OwnerSlice& slice = store.owner(bucket.index);
    const auto [master, exp_avg, exp_avg_sq] = states_of(slice);
    states.push_back(state_of(bucket, slice, master.const_data_ptr(), exp_avg.const_data_ptr(),
                              exp_avg_sq.const_data_ptr()));
  }
  return states;
}

int64_t SliceSnapshot::followed_bytes(const model::ParameterTable& table,
                                      const runtime::ParameterStore::Options& options, int world_size,
                                      int rank) {
  int64_t elements = 0;
  for (const model::Bucket& bucket : table.buckets) {
    elements += cost::followed_numbers(bucket.trained, options.pull) *
                link::OwnerLayout{world_size}.owned(bucket, rank).size();
  }
  return elements * comm::size_of(options.precision.master());
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

}  // namespace sluice::run

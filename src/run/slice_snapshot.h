// Copies of owner slices at one moment, to be written while the next step changes the slices.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <limits>
#include <vector>

#include "checkpoint/save.h"
#include "cost/snapshot_cost.h"
#include "runtime/parameter_store.h"

namespace sluice::run {

// The progress of a thread that reads owner slices, bucket by bucket in the table's order. Another thread
// waits for it.
class ReadProgress {
 public:
  // Before the reader's thread begins: nothing is read yet.
  void begin() { read_ = 0; }
  void set_read(int bucket) { advance_to(bucket + 1); }
  // All slices are read, or the rest will not be.
  void end() { advance_to(kAll); }

  bool has_read(int bucket) const { return read_ > bucket; }
  void wait(int bucket) const;

 private:
  static constexpr int kAll = std::numeric_limits<int>::max();
  void advance_to(int read);

  std::atomic<int> read_ = kAll;
};

// Ends a reader's progress on leaving the scope, also by an exception.
class EndOfRead {
 public:
  explicit EndOfRead(ReadProgress& progress) : progress_(progress) {}
  ~EndOfRead() { progress_.end(); }
  EndOfRead(const EndOfRead&) = delete;
  EndOfRead& operator=(const EndOfRead&) = delete;

 private:
  ReadProgress& progress_;
};

// Host memory for one copy (pinned for a GPU's), kept between copies. It is not among the tensors that
// ops/tensor_memory.h counts. Not thread-safe.
class SliceSnapshot {
 public:
  // Starts allocating the memory on a thread of its own, because the first touch of pages takes time. Without
  // this call the first take() allocates it.
  void make_room(const runtime::ParameterStore& store);
  // Copies a rank's slices, from a GPU on a stream of its own. A bucket's slice must not change before
  // `progress` has passed it. The result points into this object until the next take(). Frozen slices are
  // copied from a GPU once, and on a CPU never, because they do not change.
  std::vector<checkpoint::OwnerState> take(const runtime::ParameterStore& store, ReadProgress& progress);
  // As take(), but slices in host memory are not copied: for callers that wait for the end of the save.
  std::vector<checkpoint::OwnerState> view(const runtime::ParameterStore& store);

  // The size of a copy of this rank's slices.
  static int64_t bytes(const model::ParameterTable& table, const runtime::Precision& precision,
                       int world_size, int rank);
  // Additional bytes to resume if parameters are pulled by differences: the sums of the pulled differences of
  // trained buckets, as wide as masters; else 0.
  static int64_t followed_bytes(const model::ParameterTable& table,
                                const runtime::ParameterStore::Options& options, int world_size, int rank);

 private:
  std::future<at::Tensor> room_;  // until the first take(); then
  at::Tensor memory_;             // bytes: the copied buckets' states end to end
};

// Copies a rank's trained slices end to end into `bytes`, which has snapshot_bytes() (run/snapshot_size.h).
// Each bucket has its masters, then first and second moments; behind all buckets follow the sums of pulled
// differences, bucket by bucket. From a GPU on a stream of its own; returns when the copies are complete.
void copy_slices(const runtime::ParameterStore& store, char* bytes);

}  // namespace sluice::run

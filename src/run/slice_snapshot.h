// Owner slices as they are at one moment, for who writes them while the next step changes them.
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

// How far the one who reads owner slices has come, bucket by bucket in the table's order. One thread reads,
// another waits.
class ReadProgress {
 public:
  // Before the reader's thread begins: nothing is read yet.
  void begin() { read_ = 0; }
  void set_read(int bucket) { advance_to(bucket + 1); }
  // All is read, or nobody will read the rest.
  void end() { advance_to(kAll); }

  bool has_read(int bucket) const { return read_ > bucket; }
  void wait(int bucket) const;

 private:
  static constexpr int kAll = std::numeric_limits<int>::max();
  void advance_to(int read);

  std::atomic<int> read_ = kAll;
};

// Whatever becomes of the reader: its end.
class EndOfRead {
 public:
  explicit EndOfRead(ReadProgress& progress) : progress_(progress) {}
  ~EndOfRead() { progress_.end(); }
  EndOfRead(const EndOfRead&) = delete;
  EndOfRead& operator=(const EndOfRead&) = delete;

 private:
  ReadProgress& progress_;
};

// Host memory for one copy (pinned for a GPU's), kept: it is no tensors' as ops/tensor_memory.h counts them.
// Not thread-safe.
class SliceSnapshot {
 public:
  // Begins to make the memory, on a thread of its own: the system takes its time for a first touch. Else the
  // first take() does.
  void make_room(const runtime::ParameterStore& store);
  // Copies a rank's slices, from a GPU on a stream of its own. Nobody may change a bucket's before `progress`
  // has it. The result points into this object until the next take(). What is not trained is copied from a
  // GPU once, and on a CPU never: it stays as it is.
  std::vector<checkpoint::OwnerState> take(const runtime::ParameterStore& store, ReadProgress& progress);
  // No copy where the slices lie in host memory already: for who waits until the save has ended.
  std::vector<checkpoint::OwnerState> view(const runtime::ParameterStore& store);

  // What a copy of this rank's slices takes.
  static int64_t bytes(const model::ParameterTable& table, const runtime::Precision& precision,
                       int world_size, int rank);
  // What it takes besides to go on where parameters are pulled by differences: what these have come to, as
  // wide as masters, of the buckets that are trained; else 0.
  static int64_t followed_bytes(const model::ParameterTable& table,
                                const runtime::ParameterStore::Options& options, int world_size, int rank);

 private:
  std::future<at::Tensor> room_;  // until the first take(); then
  at::Tensor memory_;             // bytes: the copied buckets' states end to end
};

// Copies a rank's slices of what is trained end to end into memory of run/snapshot_size.h's snapshot_bytes:
// of each bucket the masters, then the first and the second moments; behind all of them what differences have
// come to, bucket by bucket. From a GPU on a stream of its own; returns when they are there.
void copy_slices(const runtime::ParameterStore& store, char* bytes);

}  // namespace sluice::run

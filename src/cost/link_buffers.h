// What a rank's memory holds beside parameters, gradients, optimiser states and activations: the buffers in
// which pull and push move parameters and gradients, copies, and what is small. An exchange of more than
// kPieceElements is cut into pieces, so that the buffers of a large embedding or head stay small.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// Whether these bytes are counted: the lengths of a published table fit beside all that its program
// allocates, so nothing of ours comes on top of them.
inline bool counts_buffers(const CostModel::Options& options) { return options.scheme_times.empty(); }

// That a rank sends or receives at once: enough for the bandwidth of every link.
inline constexpr int64_t kPieceElements = int64_t{1} << 22;

// Exchanges one after another that move so many elements of the busiest rank; at least one.
int64_t link_pieces(int64_t busiest_elements);

// Elements of one level of one round that a rank sends and receives in pull; in push what is trained of them
// goes the other way.
struct LinkLoad {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t trained_sent = 0;
  int64_t trained_received = 0;
};

// What one level's buffers take for the fullest of several rounds, among ranks of a world of so many.
class LinkBuffers {
 public:
  LinkBuffers(const MemoryModel& memory, strategy::PullCodec pull, strategy::Codec push, int world_size)
      : memory_(memory), pull_(pull), push_(push), world_size_(world_size) {}

  void add_round(const LinkLoad& load, int64_t pieces);
  int64_t bytes() const { return send_ + receive_ + wide_ + differences_; }

 private:
  int64_t coded(strategy::Codec codec, int64_t elements, int64_t wide) const;

  const MemoryModel& memory_;
  strategy::PullCodec pull_;
  strategy::Codec push_;
  int world_size_;
  int64_t send_ = 0;
  int64_t receive_ = 0;
  int64_t wide_ = 0;         // of what travels coded, before and behind it
  int64_t differences_ = 0;  // whole numbers and factors of a pull in differences
};

// What planning counts as the buffers of a rank of that stage, where all pipelines are of the scheme; 0 on
// one rank.
int64_t link_buffer_bytes(const CostModel& cost, const strategy::Scheme& scheme, int stage, int world_size);

// An owner's copies of its masters in the dtype of computation, where that is another.
inline int64_t narrow_copies_bytes(const MemoryModel& memory, int64_t owned) {
  return memory.element_bytes != memory.kept_master_bytes() ? owned * memory.element_bytes : 0;
}

// With what is too small to be counted one by one, ids, targets and tables, and what allocators round up.
inline constexpr int64_t kSmallTensorBytes = int64_t{1} << 16;
inline int64_t with_small_tensors(int64_t bytes) { return bytes + bytes / 512 + kSmallTensorBytes; }

}  // namespace sluice::cost

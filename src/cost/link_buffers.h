// A rank's memory beside parameters, gradients, optimizer states and activations: buffers in which pull and
// push move parameters and gradients, copies, and small tensors. An exchange of more than kPieceElements is
// cut into pieces, so that the buffers of a large embedding or head stay small.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// Whether these bytes are counted. The lengths of a published table fit beside all that its program
// allocates, so our buffers are not added.
inline bool counts_buffers(const CostModel::Options& options) { return options.scheme_times.empty(); }

// Elements that a rank sends or receives at once: enough for the bandwidth of every link.
inline constexpr int64_t kPieceElements = int64_t{1} << 22;

// The number of consecutive exchanges that move so many elements of the busiest rank; at least one.
int64_t link_pieces(int64_t busiest_elements);

// Elements that a rank sends and receives on one level in one round of a pull. In a push the trained ones go
// the other way.
struct LinkLoad {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t trained_sent = 0;
  int64_t trained_received = 0;
};

// Buffer bytes of one level for the fullest of several rounds, among `world_size` ranks.
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
  int64_t wide_ = 0;         // coded transfers' values before coding and after decoding
  int64_t differences_ = 0;  // integers and factors of a pull in differences
};

// Bytes that planning counts for the buffers of a rank of that stage if all pipelines have the scheme; 0 on
// one rank.
int64_t link_buffer_bytes(const CostModel& cost, const strategy::Scheme& scheme, int stage, int world_size);

// An owner's copies of its masters in the compute dtype, if that is another dtype.
inline int64_t narrow_copies_bytes(const MemoryModel& memory, int64_t owned) {
  return memory.element_bytes != memory.kept_master_bytes() ? owned * memory.element_bytes : 0;
}

// Adds tensors that are too small to be counted singly (ids, targets, tables) and what allocators round up.
inline constexpr int64_t kSmallTensorBytes = int64_t{1} << 16;
inline int64_t with_small_tensors(int64_t bytes) { return bytes + bytes / 512 + kSmallTensorBytes; }

}  // namespace sluice::cost

// What the ranks of a scheme need of memory: what is proved before a step runs, in bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cost/cost_model.h"
#include "cost/exchange_bytes.h"

namespace sluice::cost {

// A stage's last layers, whose activations are needed first again and never leave the device.
inline constexpr int kLayersThatStay = 2;

// Under a cost model's memory policy. Cheap to make and to copy; thread-safe.
class MemoryCost {
 public:
  MemoryCost(CostModel cost, const strategy::Scheme& scheme);

  // Bytes a rank of the fullest stage needs whatever the batch: what it holds of compute shards and gradient
  // accumulators, owner slices, a chunk of logits, and where lanes share parameters the most that a cell
  // gathers.
  int64_t fixed_bytes(int world_size) const;
  // A lane's credit and the longest micro-batch: the tokens whose kept bytes, deferred weight gradients
  // (where backward is split), row of the stage's boundary and transients (of the longest micro-batch, once)
  // fit beside fixed_bytes, and whose offloaded bytes fit the host. 0: does not fit. With a table the longest
  // micro-batch is the published one: pp of it fit.
  int64_t credit_tokens(int world_size) const;
  int64_t max_len_tokens(int world_size) const { return max_len_beside(fixed_bytes(world_size)); }
  // The longest micro-batch beside so many fixed bytes, which no policy changes.
  int64_t max_len_beside(int64_t fixed_bytes) const;
  // What a micro-batch of `tokens` under `policy` takes of that credit, rounded up, and at most all of it.
  int64_t credit_of(int world_size, const strategy::MemoryPolicy& policy, int64_t tokens) const;

  // Activation bytes a token of an operation: made by the forward, kept of those until the backward (in
  // whichever memory), and held beyond the made ones until a deferred W. Nothing is kept of operations that
  // no backward reaches. `head_lanes`: lanes of a head group.
  int64_t saved_bytes_per_token(int64_t position) const;
  int64_t kept_bytes_per_token(int64_t position, int head_lanes = 1) const;
  int64_t deferred_bytes_per_token(int64_t position) const;
  // Of rows that travelled to experts, where they stay (FsdpTraits::keeps_dispatched).
  int64_t dispatched_bytes_per_token(int64_t position) const;
  // What a lane with a micro-batch of so many tokens takes beside fixed_bytes, and of the host.
  int64_t bytes_of(int64_t tokens) const {
    return tokens * (held_bytes_per_token() + transient_bytes_per_token());
  }
  int64_t host_bytes_of(int64_t tokens) const { return tokens * host_bytes_per_token(); }
  // What a token takes of the device from forward to backward, on the fullest stage.
  int64_t held_bytes_per_token() const;
  // What a backward of the run has made again at any time, a token.
  int64_t recomputed_bytes_per_token(base::Interval run) const;
  // The row of activations or gradients at a stage's boundary, a token.
  int64_t boundary_bytes_per_token() const;
  // What a block of a micro-batch moves to host memory and back: a share of its kept bytes. Of a stage's
  // blocks all but the last two do.
  int64_t offloaded_bytes(int64_t position, int64_t tokens, int head_lanes = 1) const;

  // What a cell of a micro-batch has at work beside all of the above, at most: of a block, or with the head a
  // chunk of logits. `copies`: gradients of attention are added up apart, over a ring or from branches. No
  // more than `loss_tokens` of its tokens have a loss: no others reach the head's products.
  int64_t working_bytes(CellKind kind, base::Interval run, int64_t tokens, int64_t loss_tokens,
                        bool copies) const;
  // Where lanes share parameters: what such a cell has of gathered parameters and of gradients that are being
  // summed, at most: parameters of two neighbouring operations and of a block that is kept, gradients of two,
  // those of one also as they travel, and what a rank receives of the sums; where lanes sum in runs, of
  // the operation before that the runs' sums and what a rank receives of others.
  int64_t gathered_bytes(CellKind kind, base::Interval run) const;

 private:
  const CostModel::Options& options() const { return cost_.options(); }
  const model::Program& program() const { return cost_.program(); }
  model::TokenBytes token_bytes(int64_t position) const;
  // The first stages, among which is the one that holds most of a micro-batch: of alike blocks no stage has
  // more than the first, or, where the embedding takes the time of some, the second.
  int stages_to_compare() const { return all_blocks_alike() ? std::min(scheme_.pp, 2) : scheme_.pp; }
  bool all_blocks_alike() const { return program().uniform() && !cost_.policy().recomputes_some(); }
  // Whether the block is what the one before it is, and both are recomputed or neither.
  bool like_before(int64_t position) const {
    return program().at(position).kind == program().at(position - 1).kind &&
           cost_.recomputes(position) == cost_.recomputes(position - 1);
  }
  // The blocks of a run, without those that are like the one before.
  template <typename Visit>
  void for_each_kind_of_block(base::Interval run, Visit visit) const;
  // The blocks of a stage whose activations wait for a backward.
  base::Interval kept_blocks(int stage) const {
    return program().blocks_in(program().walked_back(cost_.stage_run(scheme_, stage)));
  }
  int64_t stage_bytes(int stage, int world_size) const;
  int64_t held_bytes_of_stage(int stage) const;
  int64_t dropped_bytes_per_token(int64_t position) const;           // behind its forward
  int64_t host_bytes_per_token() const;                              // fullest stage
  int64_t transient_bytes_per_token() const;                         // that credits leave room for
  int64_t plain_transient_bytes_per_token() const;  // of these, without rings and what is made again
  int64_t most_transient_bytes(int tp) const;
  int64_t attention_bytes_per_token() const;                         // of kernels, in a backward
  int64_t ring_bytes_at_work(const model::TokenBytes& bytes) const;  // a token's, beside other backwards'
  int64_t head_working_bytes(int64_t tokens, int64_t loss_tokens) const;
  // Of narrow products beside their operands and results: these as floats, and a matrix's codes
  // (ops/low_precision_gemm.h).
  int64_t narrow_product_bytes(int64_t tokens) const;
  // Of coded matrices of a block of the run, expanded while it is at work.
  int64_t expanded_bytes(base::Interval run) const;
  int64_t within_host(int64_t tokens, int64_t at_once) const;  // at most what the host holds of them

  CostModel cost_;
  strategy::Scheme scheme_;
  const SchemeTimes* published_ = nullptr;
};

}  // namespace sluice::cost

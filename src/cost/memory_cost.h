// Memory that the ranks of a scheme need, in bytes, as it is proved before a step runs.
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

  // Bytes that a rank of the fullest stage needs whatever the batch: its part of compute shards and
  // gradient accumulators, owner slices, a chunk of logits, and under FSDP the most that a cell
  // gathers.
  int64_t fixed_bytes(int world_size) const;
  // Codes of the run's matrices that are multiplied as 8-bit floats, for both directions (ops/float8.h): all
  // stay through a step. Where operations are gathered or expanded: one block's at a time, in one direction
  // unless it is recomputed. Part of fixed_bytes().
  int64_t float8_code_bytes(base::Interval run) const;
  // A lane's credit, and the longest micro-batch, in tokens that fit. Beside fixed_bytes they need kept
  // bytes, deferred weight gradients (if backward is split), a row of the stage's boundary, and transients
  // (of the longest micro-batch, once). Their offloaded bytes must fit the host. 0: does not fit. With a
  // table the longest micro-batch is the published one: pp of it fit.
  int64_t credit_tokens(int world_size) const;
  int64_t max_len_tokens(int world_size) const { return max_len_beside(fixed_bytes(world_size)); }
  // The longest micro-batch beside so many fixed bytes, which no policy changes.
  int64_t max_len_beside(int64_t fixed_bytes) const;
  // Credit that a micro-batch of `tokens` under `policy` takes, rounded up, and at most all of it.
  int64_t credit_of(int world_size, const strategy::MemoryPolicy& policy, int64_t tokens) const;

  // Activation bytes a token of an operation: made by the forward; kept of them until the backward, in device
  // or host memory; held beyond the made ones until a deferred W. Operations that no backward reaches keep
  // nothing. `head_lanes`: lanes of a head group.
  int64_t saved_bytes_per_token(int64_t position) const;
  int64_t kept_bytes_per_token(int64_t position, int head_lanes = 1) const;
  int64_t deferred_bytes_per_token(int64_t position) const;
  // Bytes of rows that travelled to experts, if they stay (Execution::keeps_dispatched).
  int64_t dispatched_bytes_per_token(int64_t position) const;
  // Device bytes of a lane's micro-batch of so many tokens, beside fixed_bytes; and its host bytes.
  int64_t bytes_of(int64_t tokens) const {
    return tokens * (held_bytes_per_token() + transient_bytes_per_token());
  }
  int64_t host_bytes_of(int64_t tokens) const { return tokens * host_bytes_per_token(); }
  // Device bytes of a token from forward to backward, on the fullest stage.
  int64_t held_bytes_per_token() const;
  // The most recomputed bytes that a backward of the run holds at any time, a token.
  int64_t recomputed_bytes_per_token(base::Interval run) const;
  // Bytes that a block of a micro-batch moves to host memory and back: a share of its kept bytes. All blocks
  // of a stage but the last two move them.
  int64_t offloaded_bytes(int64_t position, int64_t tokens, int head_lanes = 1) const;

  // The most working memory of a micro-batch's cell, beside all of the above: of a block, or of a chunk of
  // logits if the run has the head. `copies`: gradients of attention are added up apart, over a ring or from
  // branches. At most `loss_tokens` of its tokens have a loss; no others reach the head's products.
  int64_t working_bytes(CellKind kind, base::Interval run, int64_t tokens, int64_t loss_tokens,
                        bool copies) const;
  // An MTP layer's forward and backward within the head's forward (layers/mtp.h): the bytes of a token that
  // it keeps between the two (`saved`) and those at work; without such a layer zeros.
  model::TokenBytes mtp_bytes() const;
  // Under FSDP: the most that such a cell holds of gathered parameters and of gradients that are being
  // summed. It counts parameters of two neighbouring operations and of a block that is kept, gradients of
  // two, those of one also as they travel, and a rank's received sums. If lanes sum in runs, it also counts
  // the run sums of the operation before these, and what a rank receives from other runs.
  int64_t gathered_bytes(CellKind kind, base::Interval run) const;

 private:
  const CostModel::Options& options() const { return cost_.options(); }
  const model::Program& program() const { return cost_.program(); }
  model::TokenBytes token_bytes(int64_t position) const;
  // The number of first stages among which one holds most of a micro-batch. If blocks are equal, no stage has
  // more than the first, or than the second if the embedding takes the time of some blocks.
  int stages_to_compare() const { return all_blocks_alike() ? std::min(scheme_.pp, 2) : scheme_.pp; }
  bool all_blocks_alike() const { return program().uniform() && !cost_.policy().recomputes_some(); }
  // Whether the block is like the one before it, and both are recomputed or neither.
  bool like_before(int64_t position) const {
    return program().at(position).kind == program().at(position - 1).kind &&
           cost_.recomputes(position) == cost_.recomputes(position - 1);
  }
  // Visits the blocks of a run except those that are like the one before.
  template <typename Visit>
  void for_each_kind_of_block(base::Interval run, Visit visit) const;
  // The blocks of a stage whose activations wait for a backward.
  base::Interval kept_blocks(int stage) const {
    return program().blocks_in(program().walked_back(cost_.stage_run(scheme_, stage)));
  }
  int64_t stage_bytes(int stage, int world_size) const;
  int64_t held_bytes_of_stage(int stage) const;
  int64_t dropped_bytes_per_token(int64_t position) const;  // after its forward
  int64_t host_bytes_per_token() const;                     // fullest stage
  int64_t transient_bytes_per_token() const;                // credits leave room for it
  int64_t plain_transient_bytes_per_token() const;          // the same without rings and recomputation
  int64_t most_transient_bytes(int tp) const;
  int64_t attention_bytes_per_token() const;                         // kernels' scratch in a backward
  int64_t ring_bytes_at_work(const model::TokenBytes& bytes) const;  // a token's, beyond other backwards'
  int64_t mtp_working_bytes_per_token(bool copies) const;
  int64_t head_working_bytes(int64_t tokens, int64_t loss_tokens) const;
  // Low-precision products need more than operands and results: these as floats, and a matrix's codes
  // (ops/low_precision_gemm.h).
  int64_t narrow_product_bytes(int64_t tokens) const;
  // Coded matrices of a block of the run, expanded while the block is at work.
  int64_t expanded_bytes(base::Interval run) const;
  int64_t within_host(int64_t tokens, int64_t at_once) const;  // as many as the host holds, at most `tokens`

  CostModel cost_;
  strategy::Scheme scheme_;
  const SchemeTimes* published_ = nullptr;
};

}  // namespace sluice::cost

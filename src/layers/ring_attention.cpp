// T: rows of the micro-batch, N: query heads, D: dimensions of a head; B, W, J as in travelling_keys.h.
//
// The softmax over all keys is merged from those over the blocks (ops::merge). Backward is the sum over the
// blocks too: with the merged lse and δ = Σ dout·out of the whole, P and dS of a block need no other block's
// keys.
#include "layers/ring_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <optional>
#include <utility>

namespace sluice::layers {
namespace {

using Transfer = std::optional<Passing>;

// One step of all lanes: a block goes to the next lane while another comes from the one before.
Transfer pass(LaneChannel& channel, const RingLayout& ring, const at::Tensor& to, const at::Tensor& from) {
  using Parcel = LaneChannel::Parcel;
  return channel.exchange(
      std::array{Parcel{from, ring.previous, Parcel::Way::kFrom}, Parcel{to, ring.next, Parcel::Way::kTo}});
}

// What goes round: the rows of the block that a lane attends to, and of what comes next.
class Blocks {
 public:
  Blocks(LaneChannel& channel, const RingLayout& ring, const TravellingKeys& keys,
         const at::TensorOptions& like)
      : channel_(channel), ring_(ring), keys_(keys) {
    for (at::Tensor& buffer : buffers_) buffer = at::empty({ring.most_rows(), keys.width()}, like);
    const at::Tensor own_BW = of_step(0);
    int64_t row = 0;
    for (const base::Interval rows : ring.own_rows) {
      keys.put(rows, own_BW.narrow(0, row, rows.size()));
      row += rows.size();
    }
  }

  // Begins to pass the step's block on, for the next step's; after the last step there is none.
  Transfer pass_on(int step) {
    if (step + 1 == ring_.lanes) return std::nullopt;
    return pass(channel_, ring_, of_step(step), of_step(step + 1));
  }

  at::Tensor of_step(int step) const {
    return buffers_[static_cast<size_t>(step % 2)].narrow(0, 0, ring_.rows_in_step(step));
  }
  // Queries of the input, keys and values of the step's block.
  ops::AttentionInput with_keys_of(const ops::AttentionInput& input, int step) const {
    return input.on(keys_.keys_of(of_step(step)));
  }

 private:
  LaneChannel& channel_;
  const RingLayout& ring_;
  const TravellingKeys& keys_;
  std::array<at::Tensor, 2> buffers_;
};

// The sums of a block's gradients on their way round: every lane adds what its queries contribute. They set
// out at the first step after their block's own and are home after the last.
class BlockGradients {
 public:
  BlockGradients(LaneChannel& channel, const RingLayout& ring, const TravellingKeys& keys,
                 const at::TensorOptions& like)
      : channel_(channel), ring_(ring), keys_(keys), like_(like) {}

  // Adds this lane's contribution of a step to what has come and sends the sum on.
  void add_and_pass_on(const at::Tensor& own_BW, int step) {
    if (passing_) {
      passing_->wait(like_.device());
      own_BW.add_(come_BW_);
    }
    sent_BW_ = own_BW.to(like_.dtype());
    come_BW_ = at::empty({ring_.rows_in_step(step + 1), keys_.width()}, like_);
    passing_ = pass(channel_, ring_, sent_BW_, come_BW_);
  }

  void add_home() {
    if (!passing_) return;  // one lane
    passing_->wait(like_.device());
    int64_t row = 0;
    for (const base::Interval rows : ring_.own_rows) {
      keys_.add(rows, come_BW_.narrow(0, row, rows.size()));
      row += rows.size();
    }
  }

 private:
  LaneChannel& channel_;
  const RingLayout& ring_;
  const TravellingKeys& keys_;
  at::TensorOptions like_;
  at::Tensor sent_BW_, come_BW_;
  Transfer passing_;
};

}  // namespace

void add_blocks_backward(const at::Tensor& dout_TND, const ops::AttentionInput& input,
                         const ops::AttentionResult& saved, std::span<const ops::AttentionBlock> blocks,
                         const ops::AttentionGradient& gradient) {
  if (blocks.empty()) return;
  const at::ScalarType wide = saved.lse_NT.scalar_type();
  const ops::AttentionGradient sum{gradient.dq_TND.to(wide), gradient.dk_TKD.to(wide),
                                   gradient.dv_TKD.to(wide)};
  ops::attend_blocks_backward(dout_TND, input, saved, blocks, sum);
  if (sum.dq_TND.is_same(gradient.dq_TND)) return;
  gradient.dq_TND.copy_(sum.dq_TND);
  gradient.dk_TKD.copy_(sum.dk_TKD);
  gradient.dv_TKD.copy_(sum.dv_TKD);
}

ops::AttentionResult ring_attention(LaneChannel& channel, const AttendedRows& rows,
                                    const ops::AttentionInput& input, const TravellingKeys& keys) {
  const RingLayout& ring = rows.ring;
  Blocks blocks(channel, ring, keys, input.k_TKD.options());
  ops::AttentionResult seen;
  for (int step = 0; step < ring.lanes; ++step) {
    Transfer passing = blocks.pass_on(step);
    if (step == 0) {
      seen = ops::attention(input, rows.sequences);
      seen.out_TND = seen.out_TND.to(seen.lse_NT.scalar_type());
      ops::attend_blocks(input, rows.prefixes, seen);
    } else {
      ops::attend_blocks(blocks.with_keys_of(input, step), ring.steps[static_cast<size_t>(step - 1)], seen);
    }
    if (passing) passing->wait(input.q_TND.device());
  }
  seen.out_TND = seen.out_TND.to(input.q_TND.scalar_type());
  return seen;
}

void ring_attention_backward(LaneChannel& channel, const AttendedRows& rows, const at::Tensor& dout_TND,
                             const ops::AttentionInput& input, const ops::AttentionResult& saved,
                             const ops::AttentionGradient& gradient, const TravellingKeys& keys) {
  const RingLayout& ring = rows.ring;
  const int64_t heads = input.k_TKD.size(1);
  const at::TensorOptions wide = saved.lse_NT.options();
  Blocks blocks(channel, ring, keys, input.k_TKD.options());
  BlockGradients gradients(channel, ring, keys, input.k_TKD.options());
  at::Tensor dq_TND;
  for (int step = 0; step < ring.lanes; ++step) {
    Transfer passing = blocks.pass_on(step);
    if (step == 0) {
      ops::attention_backward(dout_TND, input, saved, rows.sequences, gradient);
      add_blocks_backward(dout_TND, input, saved, rows.prefixes, gradient);
      dq_TND = gradient.dq_TND.to(wide.dtype());
    } else {
      const at::Tensor own_BJD = at::zeros({ring.rows_in_step(step), 2 * heads, input.k_TKD.size(2)}, wide);
      ops::attend_blocks_backward(dout_TND, blocks.with_keys_of(input, step), saved,
                                  ring.steps[static_cast<size_t>(step - 1)],
                                  {dq_TND, own_BJD.narrow(1, 0, heads), own_BJD.narrow(1, heads, heads)});
      gradients.add_and_pass_on(keys.gradient(blocks.of_step(step), own_BJD), step);
    }
    if (passing) passing->wait(input.q_TND.device());
  }
  gradients.add_home();
  if (!dq_TND.is_same(gradient.dq_TND)) gradient.dq_TND.copy_(dq_TND);
}

int64_t ring_forward_bytes(int lanes, int64_t tokens, int64_t kv_bytes_per_token) {
  return (lanes - 1) * tokens * kv_bytes_per_token;
}

int64_t ring_backward_bytes(int lanes, int64_t tokens, int64_t kv_bytes_per_token) {
  return 2 * ring_forward_bytes(lanes, tokens, kv_bytes_per_token);
}

}  // namespace sluice::layers

// Causal attention through a window, of one lane of several that share sequences. What its tokens see of
// another lane's is at most a window in front of each of its pieces, so lanes send each other those rows
// alone, straight from where they lie; lanes of which nobody sees anything send nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/lane_channel.h"
#include "layers/ring_layout.h"
#include "ops/attention.h"

namespace sluice::layers {

struct WindowLayout {
  int lanes = 1;                                // 1: no other lane is seen
  std::vector<ops::AttentionBlock> own_blocks;  // between the lane's own pieces
  struct Step {
    int to = -1;  // members of the lanes' communicator
    int from = -1;
    std::vector<base::Interval> sent;         // rows of the micro-batch, which `to` sees
    int64_t received_rows = 0;                // of `from`; 0 where this lane sees nothing of it
    std::vector<ops::AttentionBlock> blocks;  // which queries see which received rows
  };
  // By how many lanes lie between; left out where no two lanes so far apart see anything. All lanes have the
  // same steps, so that what two of them exchange comes in one order.
  std::vector<Step> steps;
};

// What branches in a micro-batch see of its own pieces of their prefixes.
std::vector<ops::AttentionBlock> prefix_blocks_in_window(const std::vector<PieceSpan>& pieces,
                                                         int64_t window);

// REQUIRES: window > 0; pieces of a sequence ascend in every micro-batch and overlap none of another lane.
WindowLayout window_layout(const RingSpans& ring, int64_t window);

// All lanes call these at once. As ring_attention and its backward do, they give what ops::attention would if
// the lane held all keys; `sequences` has every piece as one of its own. While a lane attends to rows of one
// lane those of the next are on their way. Keys and values make their way once a pass; backwards their
// gradients go straight home, where they are added in the order of lanes. Memory beside the result: received
// and sent rows of two steps, and backwards as many wide gradients and the lane's own.
ops::AttentionResult window_attention(LaneChannel& channel, const WindowLayout& layout,
                                      const ops::PackedSequences& sequences,
                                      const ops::AttentionInput& input);
void window_attention_backward(LaneChannel& channel, const WindowLayout& layout,
                               const ops::PackedSequences& sequences, const at::Tensor& dout_TND,
                               const ops::AttentionInput& input, const ops::AttentionResult& saved,
                               const ops::AttentionGradient& gradient);

}  // namespace sluice::layers

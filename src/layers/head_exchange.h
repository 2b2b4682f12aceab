// Lanes exchange heads (DeepSpeed-Ulysses, Jacobs et al. 2023): each trades its own rows of all heads for all
// rows of its own heads. Outputs return after attention.
//
// Row names: T a lane's own rows; A rows that it attends with, those of all lanes of the head group, sequence
// by sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "layers/lane_channel.h"

namespace sluice::layers {

// A head group (lanes that exchange heads), seen from one of its lanes.
struct HeadsLayout {
  int lane = 0;                    // this lane's place in the group
  std::vector<int> members;        // by lane of the group: members of the channel's communicator
  std::vector<int64_t> lane_rows;  // by lane of the group, without inert rows
  // int64 [A], on the layers' device. On the wire the group's rows lie lane after lane. wire_row_A: by
  // attended row, its wire row. attended_row_A: by wire row, its attended row.
  at::Tensor wire_row_A;
  at::Tensor attended_row_A;

  int lanes() const { return static_cast<int>(members.size()); }
  bool exchanges() const { return members.size() > 1; }
  int64_t rows() const;  // A
};

// By lane: the heads of a tensor that the lane attends with, as intervals in order.
using HeadCut = std::vector<std::vector<base::Interval>>;

// All rows of this lane's heads, [A, its heads, D], from its own rows of all heads, x [>= T, heads, D].
// Collective over the head group.
at::Tensor to_heads(LaneChannel& channel, const HeadsLayout& layout, const HeadCut& cut,
                    const at::Tensor& x_THD);

// The adjoint: writes this lane's rows of all heads to `x`, from all rows of its heads. Heads that several
// lanes attended with are summed in the order of lanes, in float or wider; inert rows become zero.
void to_tokens(LaneChannel& channel, const HeadsLayout& layout, const HeadCut& cut, const at::Tensor& y_AHD,
               const at::Tensor& x_THD);

}  // namespace sluice::layers

// Lanes exchange heads (DeepSpeed-Ulysses, Jacobs et al. 2023): instead of its own rows of all heads each of
// them gets all rows of its own heads, and gives them back after it has attended.
//
// Row names: T a lane's rows, A rows that it attends with: those of all lanes of the head group, sequence by
// sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "layers/lane_channel.h"

namespace sluice::layers {

// A head group, lanes that exchange heads, seen from one of them.
struct HeadsLayout {
  int lane = 0;                    // its place in the group
  std::vector<int> members;        // of the channel's communicator, by lane of the group
  std::vector<int64_t> lane_rows;  // by lane, inert rows left out
  // int64 [A], on the layers' device: the group's rows lie lane after lane on the wire. By attended row, where
  // it lies there; and by row there, which attended row it is.
  at::Tensor wire_row_A;
  at::Tensor attended_row_A;

  int lanes() const { return static_cast<int>(members.size()); }
  bool exchanges() const { return members.size() > 1; }
  int64_t rows() const;  // A
};

// Of the heads of a tensor, those that each lane attends with, as intervals in their order.
using HeadCut = std::vector<std::vector<base::Interval>>;

// All rows of this lane's heads [A, its heads, D] from its rows of all heads x [>= T, heads, D]. All lanes of
// the group call it at once.
at::Tensor to_heads(LaneChannel& channel, const HeadsLayout& layout, const HeadCut& cut,
                    const at::Tensor& x_THD);

// The adjoint: this lane's rows of all heads, to `x` of the same form, from all rows of its heads. Heads that
// several lanes attended with are added in the order of lanes, in float or wider; inert rows become zero.
void to_tokens(LaneChannel& channel, const HeadsLayout& layout, const HeadCut& cut, const at::Tensor& y_AHD,
               const at::Tensor& x_THD);

}  // namespace sluice::layers

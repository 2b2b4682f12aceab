#include "layers/rotation.h"

#include <ATen/TensorOperators.h>

namespace sluice::layers {

at::Tensor halves_of(const at::Tensor& neighbours) {
  return neighbours.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
}
at::Tensor neighbours_of(const at::Tensor& halves) {
  return halves.unflatten(-1, {2, -1}).transpose(-1, -2).flatten(-2);
}

void turn_heads(const at::Tensor& x_TND, model::Turning turning, const ops::RotaryTable& table,
                const at::Tensor& position_T, ops::Rotation rotation) {
  const bool forward = rotation == ops::Rotation::kForward;
  const bool neighbours = turning == model::Turning::kNeighbours;
  const at::Tensor turned_TNW = x_TND.narrow(2, 0, 2 * table.cos_PD.size(1));
  if (neighbours && forward) turned_TNW.copy_(halves_of(turned_TNW));
  const bool ahead = forward != (turning == model::Turning::kHalvesBackwards);
  ops::rotate(x_TND, table, position_T, ahead ? ops::Rotation::kForward : ops::Rotation::kBackward);
  if (neighbours && !forward) turned_TNW.copy_(neighbours_of(turned_TNW));
}

void grow_queries(const at::Tensor& q_TQ, const model::QueryGrowth& growth, const at::Tensor& position_T) {
  if (growth.beta == 0) return;
  const at::Tensor grown_T = position_T.to(at::kDouble)
                                 .add_(growth.first)
                                 .div_(static_cast<double>(growth.positions))
                                 .floor_()
                                 .log1p_()
                                 .mul_(growth.beta)
                                 .add_(1);
  at::Tensor(q_TQ).mul_(grown_T.to(q_TQ.scalar_type()).unsqueeze(1));
}

}  // namespace sluice::layers

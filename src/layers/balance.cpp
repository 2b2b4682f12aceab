#include "layers/balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "layers/sequence_sums.h"
#include "ops/device.h"
#include "ops/grouped_product.h"

namespace sluice::layers {

at::Tensor shares_of_assignments(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& id_TK,
                                 int64_t experts, const at::TensorOptions& like) {
  const auto count = static_cast<int64_t>(sequences.lengths.size());
  const at::Tensor place_TK = sequences.sequence_T.unsqueeze(1) * experts + id_TK;
  at::Tensor visits_QE = ops::counts_of(place_TK, (count + 1) * experts).view({count + 1, experts});
  add_other_lanes(lanes, sequences, visits_QE);
  const at::Tensor host = ops::upload_buffer(count + 1, at::kDouble, id_TK.device());
  auto* const even = host.mutable_data_ptr<double>();
  const auto per_token = static_cast<double>(id_TK.size(1));
  for (int64_t i = 0; i < count; ++i) {
    const auto tokens = static_cast<double>(sequences.lengths[static_cast<size_t>(i)]);
    even[i] = static_cast<double>(experts) / (per_token * tokens);
  }
  even[count] = 0;
  return (visits_QE * ops::upload(host, id_TK.device()).unsqueeze(1)).to(like);
}

at::Tensor shares_of_loads(const at::Tensor& visits_E) {
  const at::Tensor mean = visits_E.mean();
  return at::where(mean > 0, visits_E / mean, at::ones_like(visits_E));
}

}  // namespace sluice::layers

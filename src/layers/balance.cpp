#include "layers/balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <vector>

#include "base/error.h"
#include "ops/device.h"

namespace sluice::layers {
namespace {

// Adds what the other lanes have of the sequences that all have pieces of.
void add_other_lanes(LaneChannel& lanes, const SequenceRows& sequences, at::Tensor& visits_QE) {
  const at::Tensor own = visits_QE.narrow(0, 0, sequences.shared).contiguous();
  std::vector<at::Tensor> theirs;
  std::vector<LaneChannel::Parcel> parcels;
  for (const int member : sequences.others) {
    theirs.push_back(at::empty_like(own));
    parcels.push_back({own, member, LaneChannel::Parcel::Way::kTo});
    parcels.push_back({theirs.back(), member, LaneChannel::Parcel::Way::kFrom});
  }
  lanes.exchange(parcels).wait(own.device());
  for (const at::Tensor& other : theirs) visits_QE.narrow(0, 0, sequences.shared).add_(other);
}

}  // namespace

at::Tensor shares_of_assignments(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& id_TK,
                                 int64_t experts, const at::TensorOptions& like) {
  const auto count = static_cast<int64_t>(sequences.lengths.size());
  const at::Tensor place_TK = sequences.sequence_T.unsqueeze(1) * experts + id_TK;
  at::Tensor visits_QE =
      at::bincount(place_TK.view(-1), {}, (count + 1) * experts).view({count + 1, experts});
  if (sequences.shared > 0 && !sequences.others.empty()) {
    SLUICE_ASSERT(lanes != nullptr, "lanes share sequences and have no channel");
    add_other_lanes(*lanes, sequences, visits_QE);
  }
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

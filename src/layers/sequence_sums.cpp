// Q: sequences, S: rows of this TP rank's shard, M: rows that stand for sequences, H: hidden, X: any width.
#include "layers/sequence_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "base/error.h"
#include "ops/device.h"

namespace sluice::layers {
namespace {

at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// [Q + 1, 1]: 1 over each sequence's tokens, 0 for inert rows.
at::Tensor shares(const SequenceRows& sequences, const at::TensorOptions& like) {
  const auto count = static_cast<int64_t>(sequences.lengths.size());
  const at::Tensor host = ops::upload_buffer(count + 1, at::kDouble, like.device());
  auto* const share = host.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i)
    share[i] = 1 / static_cast<double>(sequences.lengths[static_cast<size_t>(i)]);
  share[count] = 0;
  return ops::upload(host, like.device()).to(like).unsqueeze(1);
}

// Sums over the rows of all TP ranks, in rank order, and then over lanes.
at::Tensor over_ranks(const LayerContext& context, const SequenceRows& sequences, at::Tensor sums_QH) {
  if (context.parallel.tp > 1) sums_QH = context.parallel.all_gather_rows(sums_QH.unsqueeze(0)).sum(0);
  add_other_lanes(context.lanes, sequences, sums_QH);
  return sums_QH;
}

at::Tensor no_sums(const SequenceRows& sequences, const at::Tensor& like_RH) {
  return at::zeros({static_cast<int64_t>(sequences.lengths.size()) + 1, like_RH.size(1)},
                   like_RH.options().dtype(wide_type(like_RH)));
}

}  // namespace

void add_other_lanes(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& sums_QX) {
  if (sequences.shared == 0 || sequences.others.empty()) return;
  SLUICE_ASSERT(lanes != nullptr, "lanes share sequences and have no channel");
  const at::Tensor own = sums_QX.narrow(0, 0, sequences.shared).contiguous();
  std::vector<at::Tensor> theirs;
  std::vector<LaneChannel::Parcel> parcels;
  for (const int member : sequences.others) {
    theirs.push_back(at::empty_like(own));
    parcels.push_back({own, member, LaneChannel::Parcel::Way::kTo});
    parcels.push_back({theirs.back(), member, LaneChannel::Parcel::Way::kFrom});
  }
  lanes->exchange(parcels).wait(own.device());
  // `own` may alias the sums, which may change from here on.
  const at::Tensor sum = sums_QX.narrow(0, 0, sequences.shared);
  for (const at::Tensor& other : theirs) sum.add_(other);
}

at::Tensor sequences_of_shard(const LayerContext& context, const SequenceRows& sequences, int64_t rows) {
  return sequences.sequence_T.narrow(0, context.parallel.t * rows, rows);
}

at::Tensor sequence_means(const LayerContext& context, const SequenceRows& sequences,
                          const at::Tensor& y_SH) {
  const at::Tensor sums_QH = no_sums(sequences, y_SH);
  sums_QH.index_add_(0, sequences_of_shard(context, sequences, y_SH.size(0)), y_SH.to(sums_QH.scalar_type()));
  return over_ranks(context, sequences, sums_QH).mul_(shares(sequences, sums_QH.options()));
}

at::Tensor sequence_means_backward(const LayerContext& context, const SequenceRows& sequences,
                                   const at::Tensor& sequence_M, const at::Tensor& dmean_MH, int64_t rows) {
  const at::Tensor found_QH = no_sums(sequences, dmean_MH);
  found_QH.index_add_(0, sequence_M, dmean_MH.to(found_QH.scalar_type()));
  const at::Tensor dsums_QH =
      over_ranks(context, sequences, found_QH).mul_(shares(sequences, found_QH.options()));
  return dsums_QH.to(dmean_MH.scalar_type()).index_select(0, sequences_of_shard(context, sequences, rows));
}

}  // namespace sluice::layers

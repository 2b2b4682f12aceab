#include "runtime/test_owned_state.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace sluice::runtime {

void record_owned(ParameterStore& store, OwnedState& state) {
  const std::vector<model::Bucket>& buckets = store.table().buckets;
  state.resize(buckets.size());
  for (const model::Bucket& bucket : buckets) {
    const OwnerSlice& slice = store.owner(bucket.index);
    std::vector<at::Tensor> numbers{slice.master};
    if (bucket.trained) numbers.insert(numbers.end(), {slice.exp_avg.read(), slice.exp_avg_sq.read()});
    for (size_t kind = 0; kind < numbers.size(); ++kind) {
      std::vector<double>& whole = state[static_cast<size_t>(bucket.index)][kind];
      whole.resize(static_cast<size_t>(bucket.size));
      std::copy_n(numbers[kind].const_data_ptr<double>(), slice.owned.size(),
                  whole.begin() + slice.owned.begin);
    }
  }
}

void set_owned(const OwnedState& state, ParameterStore& store) {
  for (const model::Bucket& bucket : store.table().buckets) {
    OwnerSlice& slice = store.owner(bucket.index);
    const auto part = [&](size_t kind) {
      const std::vector<double>& whole = state[static_cast<size_t>(bucket.index)][kind];
      return at::from_blob(const_cast<double*>(whole.data()) + slice.owned.begin, {slice.owned.size()},
                           at::kDouble);
    };
    slice.master.copy_(part(0));
    if (!bucket.trained) continue;
    slice.exp_avg.write(0, part(1));
    slice.exp_avg_sq.write(0, part(2));
  }
  store.refresh_compute_copies();
}

}  // namespace sluice::runtime

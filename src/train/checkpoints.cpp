#include "train/checkpoints.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::train {

using base::text;
using storage::Location;

checkpoint::TensorType master_type(const runtime::Precision& precision) {
  return precision.master() == comm::DType::kFloat64 ? checkpoint::TensorType::kFloat64
                                                     : checkpoint::TensorType::kFloat32;
}

namespace {

template <typename Element>
void load_slices(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store, c10::ScalarType type) {
  std::vector<Element> values;
  for (const model::Bucket& bucket : store.table().buckets) {
    runtime::OwnerSlice& slice = store.owner(bucket.index);
    const std::pair<checkpoint::State, at::Tensor*> states[] = {
        {checkpoint::State::kMaster, &slice.master},
        {checkpoint::State::kExpAvg, &slice.exp_avg},
        {checkpoint::State::kExpAvgSq, &slice.exp_avg_sq}};
    for (const auto& [state, tensor] : states) {
      if (tensor->numel() == 0) continue;
      if (tensor->is_cpu()) {
        checkpoint.read(bucket, slice.owned, state, static_cast<Element*>(tensor->mutable_data_ptr()));
        continue;
      }
      values.resize(static_cast<size_t>(slice.owned.size()));
      const at::Tensor host = at::from_blob(values.data(), {slice.owned.size()}, type);
      host.copy_(*tensor);  // what the checkpoint does not have stays
      checkpoint.read(bucket, slice.owned, state, values.data());
      tensor->copy_(host);
    }
  }
}

}  // namespace

void load_parameters(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store) {
  checkpoint.require_model(store.table().shape, master_type(store.options().precision));
  if (master_type(store.options().precision) == checkpoint::TensorType::kFloat64) {
    load_slices<double>(checkpoint, store, c10::ScalarType::Double);
  } else {
    load_slices<float>(checkpoint, store, c10::ScalarType::Float);
  }
  store.refresh_compute_copies();
}

namespace {

void read_data(const checkpoint::Manifest& manifest, const std::string& name, RunState& state) {
  if (!manifest.corpora.is_null()) state.corpora = corpus::identities_from_json(manifest.corpora, name);
  if (manifest.sampler.is_null()) return;
  state.sampler = corpus::sampler_state_from_json(manifest.sampler, name);
  if (state.sampler->step == manifest.step) return;
  throw base::InputError(text(name, ": the sampler stands at step ", state.sampler->step,
                              ", the parameters at ", manifest.step));
}

}  // namespace

RunState run_state(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::Manifest& manifest = checkpoint.manifest();
  RunState state;
  state.step = manifest.step;
  state.calibration = manifest.calibration;
  state.config = manifest.config;
  state.rollout = manifest.rollout;
  try {
    read_data(manifest, (checkpoint.directory() / "manifest.json").string(), state);
  } catch (const base::InputError& error) {
    throw checkpoint::DamagedCheckpoint(error.what());
  }
  return state;
}

}  // namespace sluice::train

#include "run/checkpoints.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "run/load_progress.h"

namespace sluice::run {

using base::text;
using storage::Location;

checkpoint::TensorType master_type(const runtime::Precision& precision) {
  return precision.master() == comm::DType::kFloat64 ? checkpoint::TensorType::kFloat64
                                                     : checkpoint::TensorType::kFloat32;
}

checkpoint::Retention retention_of(const config::CheckpointConfig& config) {
  return {.count = config.keep, .hours = config.keep_hours, .best = config.keep_best};
}

namespace {

// Reads into the tensor's numbers; numbers that the checkpoint lacks stay unchanged.
template <typename Element>
void read_state(checkpoint::Checkpoint& checkpoint, const model::Bucket& bucket, base::Interval owned,
                checkpoint::State state, const at::Tensor& numbers) {
  if (numbers.is_cpu()) {
    checkpoint.read(bucket, owned, state, static_cast<Element*>(numbers.mutable_data_ptr()));
    return;
  }
  const at::Tensor host = numbers.cpu();
  checkpoint.read(bucket, owned, state, static_cast<Element*>(host.mutable_data_ptr()));
  numbers.copy_(host);
}

template <typename Element>
void load_slices(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store, LoadProgress progress) {
  for (const model::Bucket& bucket : store.table().buckets) {
    runtime::OwnerSlice& slice = store.owner(bucket.index);
    if (slice.owned.empty()) continue;
    const at::Tensor master = runtime::wide_master(slice);
    read_state<Element>(checkpoint, bucket, slice.owned, checkpoint::State::kMaster, master);
    if (!master.is_alias_of(slice.master)) runtime::set_master(slice, 0, master);
    for (const auto& [state, moment] : {std::pair{checkpoint::State::kExpAvg, &slice.exp_avg},
                                        {checkpoint::State::kExpAvgSq, &slice.exp_avg_sq}}) {
      if (moment->numel() == 0) continue;
      const at::Tensor numbers = moment->read();
      read_state<Element>(checkpoint, bucket, slice.owned, state, numbers);
      moment->write(0, numbers);
    }
    progress.add(slice.owned.size());
  }
}

}  // namespace

void load_parameters(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store,
                     survive::Activity& activity) {
  checkpoint.require_model(store.table().model, master_type(store.options().precision));
  if (master_type(store.options().precision) == checkpoint::TensorType::kFloat64) {
    load_slices<double>(checkpoint, store, {activity, store});
  } else {
    load_slices<float>(checkpoint, store, {activity, store});
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
  state.evaluation = manifest.evaluation;
  try {
    read_data(manifest, (checkpoint.directory() / "manifest.json").string(), state);
  } catch (const base::InputError& error) {
    throw checkpoint::DamagedCheckpoint(error.what());
  }
  return state;
}

}  // namespace sluice::run

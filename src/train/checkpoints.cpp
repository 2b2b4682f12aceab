#include "train/checkpoints.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/save.h"

namespace sluice::train {

using base::text;
using storage::Location;

checkpoint::TensorType master_type(const runtime::Precision& precision) {
  return precision.master() == comm::DType::kFloat64 ? checkpoint::TensorType::kFloat64
                                                     : checkpoint::TensorType::kFloat32;
}

namespace {

std::vector<Location> newest_first(std::vector<checkpoint::SavedStep> found) {
  std::ranges::stable_sort(found, std::greater{}, &checkpoint::SavedStep::step);
  std::vector<Location> directories;
  for (const checkpoint::SavedStep& saved : found) directories.push_back(saved.directory);
  return directories;
}

}  // namespace

std::vector<Location> all_checkpoints(std::span<const Location> roots) {
  std::vector<checkpoint::SavedStep> found;
  for (const Location& root : roots) {
    try {
      std::ranges::copy(checkpoint::saved_steps(root), std::back_inserter(found));
    } catch (const base::Error& error) {
      if (found.empty()) throw;  // a run must not begin anew because its checkpoints are out of reach
      base::log_warning(text("checkpoints in ", root.string(), " are passed over: ", error.what()));
    }
  }
  return newest_first(std::move(found));
}

std::vector<Location> find_checkpoints(const Location& resume) {
  if ((resume / "manifest.json").is_file()) return {resume};
  for (const Location& candidate : {resume, resume / "checkpoints"}) {
    if (auto found = newest_first(checkpoint::saved_steps(candidate)); !found.empty()) return found;
  }
  throw base::InputError(text("[checkpoint] ", resume.string(),
                              " holds no committed checkpoint: name a step-N directory with a manifest.json, "
                              "or a run directory"));
}

std::unique_ptr<checkpoint::Checkpoint> open_newest_whole(const Location& location) {
  const std::vector<Location> directories = find_checkpoints(location);
  for (size_t index = 0;; ++index) {
    try {
      auto checkpoint = std::make_unique<checkpoint::Checkpoint>(directories[index]);
      location.is_path() ? checkpoint->verify() : checkpoint->look_through();
      return checkpoint;
    } catch (const checkpoint::DamagedCheckpoint& damage) {
      if (index + 1 == directories.size()) throw;
      base::log_warning(passed_over(directories[index], damage.what()));
    }
  }
}

std::string passed_over(const Location& directory, const std::string& fault) {
  return text(directory.string(), " is passed over: ", fault);
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
  try {
    read_data(manifest, (checkpoint.directory() / "manifest.json").string(), state);
  } catch (const base::InputError& error) {
    throw checkpoint::DamagedCheckpoint(error.what());
  }
  return state;
}

}  // namespace sluice::train

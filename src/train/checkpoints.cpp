#include "train/checkpoints.h"

#include <ATen/ops/from_blob.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/save.h"

namespace sluice::train {

namespace fs = std::filesystem;
using base::text;

checkpoint::TensorType master_type(const runtime::Precision& precision) {
  return precision.master() == comm::DType::kFloat64 ? checkpoint::TensorType::kFloat64
                                                     : checkpoint::TensorType::kFloat32;
}

namespace {

// Owner slices in host memory, and what write_rank_file wants of them.
struct HostSlices {
  std::vector<at::Tensor> tensors;
  std::vector<checkpoint::OwnerState> buckets;

  explicit HostSlices(const runtime::ParameterStore& store) {
    for (const model::Bucket& bucket : store.table().buckets) {
      const runtime::OwnerSlice& slice = store.owner(bucket.index);
      buckets.push_back({slice.owned, keep(slice.master), keep(slice.exp_avg), keep(slice.exp_avg_sq)});
    }
  }
  const void* keep(const at::Tensor& tensor) {
    tensors.push_back(tensor.to(c10::kCPU).contiguous());
    return tensors.back().const_data_ptr();
  }
};

// Every rank's record at rank 0: size, checksum and intervals as words.
std::vector<checkpoint::FileRecord> gather_records(Control& control, const checkpoint::FileRecord& own) {
  std::vector<int64_t> words{own.bytes, static_cast<int64_t>(own.checksum)};
  for (const base::Interval& interval : own.intervals) {
    words.push_back(interval.begin);
    words.push_back(interval.end);
  }
  std::vector<checkpoint::FileRecord> records;
  for (const std::vector<int64_t>& rank_words : control.gather(words)) {
    checkpoint::FileRecord record;
    record.name = checkpoint::rank_file_name(static_cast<int>(records.size()));
    record.bytes = rank_words[0];
    record.checksum = static_cast<uint64_t>(rank_words[1]);
    for (size_t i = 2; i < rank_words.size(); i += 2)
      record.intervals.push_back({rank_words[i], rank_words[i + 1]});
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

void save_checkpoint(Control& control, const runtime::ParameterStore& store, const RunState& state,
                     const fs::path& root, int keep) {
  std::string directory;
  control.together("preparing the checkpoint", [&] {
    if (control.rank() == 0) directory = checkpoint::prepare_save(root, state.step).string();
  });
  directory = control.broadcast(directory);
  checkpoint::FileRecord record;
  checkpoint::Manifest manifest;
  control.together("writing the checkpoint", [&] {
    const HostSlices slices(store);
    record = checkpoint::write_rank_file(directory, control.rank(), master_type(store.options().precision),
                                         slices.buckets);
    manifest.companions = checkpoint::write_companions(directory, state.companions);
  });
  manifest.step = state.step;
  manifest.world_size = control.world_size();
  manifest.shape = store.table().shape;
  manifest.type = master_type(store.options().precision);
  {
    const auto telling = control.activity().own("telling of the checkpoint's files");
    manifest.files = gather_records(control, record);
  }
  if (state.sampler) manifest.sampler = corpus::to_json(*state.sampler);
  manifest.corpora = corpus::to_json(state.corpora);
  manifest.calibration = state.calibration;
  manifest.config = state.config;
  control.together("committing the checkpoint", [&] {
    if (control.rank() == 0) checkpoint::commit_save(directory, manifest, keep);
  });
}

namespace {

std::vector<fs::path> newest_first(const fs::path& root) {
  std::vector<fs::path> directories;
  for (const checkpoint::SavedStep& saved : checkpoint::saved_steps(root)) {
    directories.insert(directories.begin(), saved.directory);
  }
  return directories;
}

}  // namespace

std::vector<fs::path> find_checkpoints(const std::string& resume, const fs::path& root) {
  if (resume.empty()) return {};
  if (resume == "auto") return newest_first(root);
  const fs::path path(resume);
  if (fs::exists(path / "manifest.json")) return {path};
  for (const fs::path& candidate : {path, path / "checkpoints"}) {
    if (std::vector<fs::path> found = newest_first(candidate); !found.empty()) return found;
  }
  throw base::InputError(text("[checkpoint] ", resume,
                              " holds no committed checkpoint: name a step-N directory with a manifest.json, "
                              "or a run directory"));
}

std::unique_ptr<checkpoint::Checkpoint> open_newest_whole(const fs::path& path) {
  const std::vector<fs::path> directories = find_checkpoints(path.string(), {});
  for (const fs::path& directory : directories) {
    try {
      auto checkpoint = std::make_unique<checkpoint::Checkpoint>(directory);
      checkpoint->verify();
      return checkpoint;
    } catch (const checkpoint::DamagedCheckpoint& damage) {
      if (directory == directories.back()) throw;
      base::log_warning(passed_over(directory, damage.what()));
    }
  }
  return nullptr;  // not reached: find_checkpoints gives at least one
}

std::string passed_over(const fs::path& directory, const std::string& fault) {
  return text(directory.string(), " is passed over: ", fault);
}

namespace {

template <typename Element>
void load_slices(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store, c10::ScalarType type) {
  std::vector<Element> values;
  for (const model::Bucket& bucket : store.table().buckets) {
    runtime::OwnerSlice& slice = store.owner(bucket.index);
    values.resize(static_cast<size_t>(slice.owned.size()));
    const std::pair<checkpoint::State, at::Tensor*> states[] = {
        {checkpoint::State::kMaster, &slice.master},
        {checkpoint::State::kExpAvg, &slice.exp_avg},
        {checkpoint::State::kExpAvgSq, &slice.exp_avg_sq}};
    for (const auto& [state, tensor] : states) {
      checkpoint.read(bucket.index, slice.owned, state, values.data());
      tensor->copy_(at::from_blob(values.data(), {slice.owned.size()}, type));
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

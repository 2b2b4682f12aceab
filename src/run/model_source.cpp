#include "run/model_source.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "checkpoint/conversion.h"
#include "checkpoint/find.h"
#include "checkpoint/peft_folder.h"
#include "model/tuning.h"
#include "run/checkpoints.h"
#include "run/learnt_turns.h"
#include "run/load_progress.h"

namespace sluice::run {

const model::Model& ModelSource::model() const {
  if (values) return values->model;
  return hugging_face ? hugging_face->model() : checkpoint->plain_table().model;
}

std::string ModelSource::name() const {
  if (values && !hugging_face && !checkpoint) return "a checkpoint's values";
  return hugging_face ? base::text("Hugging Face folder ", hugging_face->folder().string())
                      : base::text("checkpoint ", checkpoint->directory().string());
}

config::ComputeType ModelSource::exact_dtype() const {
  const bool wide = checkpoint && checkpoint->manifest().type == checkpoint::TensorType::kFloat64;
  return wide ? config::ComputeType::kFloat64 : config::ComputeType::kFloat32;
}

void ModelSource::load(runtime::ParameterStore& store, survive::Activity& activity) {
  LoadProgress progress(activity, store);
  const bool wide_store = store.options().precision.master() == comm::DType::kFloat64;
  if (values) {
    runtime::load_masters(store, progress.counted(values->read));
  } else if (hugging_face) {
    if (store.table().model.has_mtp()) hugging_face->weights().require_mtp(store.table());
    runtime::load_masters(store, progress.counted([&](int bucket, base::Interval interval, float* values) {
      hugging_face->read(bucket, interval, values);
    }));
  } else if (wide_store && exact_dtype() == config::ComputeType::kFloat64) {
    load_parameters(*checkpoint, store, activity);
  } else {
    runtime::load_masters(store, progress.counted(checkpoint::float_masters(*checkpoint)));
  }
}

namespace {

// A checkpoint's masters as float32.
checkpoint::BaseSource masters_of(checkpoint::Checkpoint& checkpoint) {
  using checkpoint::State;
  return [&checkpoint](const model::Bucket& bucket, base::Interval interval, float* values) {
    if (checkpoint.manifest().type != checkpoint::TensorType::kFloat64)
      return checkpoint.read(bucket, interval, State::kMaster, values);
    std::vector<double> wide(static_cast<size_t>(interval.size()));
    checkpoint.read(bucket, interval, State::kMaster, wide.data());
    std::ranges::copy(wide, values);
  };
}

}  // namespace

void add_adapters(ModelSource& model, const std::vector<std::filesystem::path>& folders) {
  const model::Model own = model.model();
  if (own.lora().rank > 0) {
    throw base::InputError(base::text(model.name(),
                                      " has adapters of its own: export it, merged, and serve that folder "
                                      "with --adapter"));
  }
  const checkpoint::FileNames names =
      model.hugging_face ? model.hugging_face->record().names : checkpoint::FileNames();
  checkpoint::BaseSource read;
  if (model.hugging_face) {
    read = [base = model.hugging_face.get()](const model::Bucket& bucket, base::Interval interval,
                                             float* values) { base->read(bucket, interval, values); };
  } else {
    read = masters_of(*model.checkpoint);
  }
  checkpoint::SideBySide all = checkpoint::side_by_side(model::untuned(own), names, std::move(read), folders);
  model.values = ModelSource::Values{std::move(all.model), std::move(all.read)};
}

std::vector<int64_t> end_tokens_in(const storage::Location& folder) {
  std::vector<checkpoint::Companion> files;
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (folder.is_path() && (folder / name).is_file()) files.push_back({name, (folder / name).read()});
  }
  return end_tokens_in(files);
}

ModelSource open_model(const storage::Location& location) {
  ModelSource source;
  if (!location.is_path()) {
    source.checkpoint = checkpoint::open_newest_whole(location);
    return source;
  }
  const std::filesystem::path& path = location.path();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw base::InputError(base::text(path.string(),
                                      " does not exist: name a Hugging Face folder, a checkpoint or a run "
                                      "directory"));
  }
  if (std::filesystem::exists(path / "config.json", ignored)) {
    source.hugging_face = std::make_unique<checkpoint::HuggingFaceModel>(path);
  } else {
    source.checkpoint = checkpoint::open_newest_whole(location);
  }
  return source;
}

}  // namespace sluice::run

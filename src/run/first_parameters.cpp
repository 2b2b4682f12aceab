#include "run/first_parameters.h"

#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "run/load_progress.h"
#include "run/snapshot_replicas.h"
#include "run/snapshot_size.h"
#include "session/other_models.h"

namespace sluice::run {

namespace {

void initialize(const config::RunConfig& config, runtime::ParameterStore& store, runtime::Coded coded) {
  runtime::initialize(store, static_cast<uint64_t>(config.model.seed.value_or(config.data.seed)), coded);
}

void load_weights(const std::string& folder, runtime::ParameterStore& store, survive::Activity& activity) {
  const checkpoint::HuggingFaceModel weights(folder);
  LoadProgress progress(activity, store);
  const auto read = [&](const model::Bucket& plain, base::Interval interval, float* values) {
    weights.read(plain, interval, values);
  };
  runtime::load_masters(store, progress.counted([&](int bucket, base::Interval interval, float* values) {
    weights.read(store.table().buckets[static_cast<size_t>(bucket)], interval, values);
  }),
                        progress.counted_plain(read));
  runtime::load_magnitudes(store, read);
  store.refresh_compute_copies();
}

bool has_adapters(const runtime::ParameterStore& store) { return store.table().model.lora().rank > 0; }

void begin_parameters(const config::RunConfig& config, runtime::ParameterStore& store,
                      survive::Activity& activity) {
  const bool whole = !config.model.hf.empty() && checkpoint::has_hugging_face_weights(config.model.hf);
  run::begin_parameters(config, whole ? config.model.hf : "", store, activity);
}

void load_parameters(const config::RunConfig& config, Resumed& resumed, const Reference& reference,
                     runtime::ParameterStore& store, survive::Control& control) {
  const bool has_weights = resumed.checkpoint() != nullptr || !config.model.hf.empty();
  const std::string what = base::text(has_weights ? "loading " : "initialising ",
                                      base::human_count(store.table().size()), " parameters");
  control.together(what, [&] {
    checkpoint::Checkpoint* checkpoint = resumed.checkpoint();
    if (checkpoint == nullptr && reference.empty()) begin_parameters(config, store, control.activity());
    if (checkpoint == nullptr) return;
    // A checkpoint has adapters only if they were trained before.
    if (has_adapters(store)) initialize(config, store, runtime::Coded::kLeft);
    run::load_parameters(*checkpoint, store, control.activity());
  });
  resumed.close_checkpoint();
}

}  // namespace

void begin_parameters(const config::RunConfig& config, const std::string& folder,
                      runtime::ParameterStore& store, survive::Activity& activity) {
  const bool whole = !folder.empty();
  // Model folders have no adapters, and no new head.
  const bool has_head = !store.table().model.has_vocabulary();
  if (!whole || has_adapters(store) || has_head)
    initialize(config, store, whole ? runtime::Coded::kLeft : runtime::Coded::kDrawn);
  if (whole) load_weights(folder, store, activity);
}

Reference::Reference(const config::RunConfig& config, runtime::ParameterStore& store,
                     survive::Control& control)
    : store_(store) {
  if (!session::needs_reference(config.rl)) return;
  control.together("loading the reference", [&] {
    begin_parameters(config, store, control.activity());
    for (const model::Bucket& bucket : store.table().buckets)
      masters_.push_back(bucket.trained ? store.owner(bucket.index).master.clone() : at::Tensor());
  });
}

void Reference::exchange() {
  for (const model::Bucket& bucket : store_.table().buckets) {
    if (!bucket.trained) continue;
    store_.wait_for_readers(bucket.index);
    at::Tensor& reference = masters_[static_cast<size_t>(bucket.index)];
    const at::Tensor own = store_.owner(bucket.index).master.clone();
    store_.owner(bucket.index).master.copy_(reference);
    reference.copy_(own);
  }
  store_.refresh_compute_copies();
}

void open_parameters(const config::RunConfig& config, RunStart& start, const Reference& reference,
                     runtime::ParameterStore& store, survive::Control& control) {
  Resumed& resumed = start.resumed();
  // A snapshot has trained parameters only; frozen ones come from a checkpoint, or from the run's start.
  if (!resumed.from_snapshot() || has_frozen(store.table()))
    load_parameters(config, resumed, reference, store, control);
  if (!resumed.from_snapshot()) return;
  const auto restoring = control.activity().shared("taking up the snapshots");
  restore(*resumed.worker_context(), control.communicator(), store);
}

}  // namespace sluice::run

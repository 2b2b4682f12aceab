// A trained model on disk: a Hugging Face folder, a checkpoint, or a run directory.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"
#include "config/run_config.h"
#include "runtime/parameter_store.h"
#include "survive/activity.h"

namespace sluice::run {

// Exactly one of the first two is open, or there are only values. Values beside one are derived from it.
struct ModelSource {
  std::unique_ptr<checkpoint::HuggingFaceModel> hugging_face;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint;
  // Masters that are computed from other masters, as for an export.
  struct Values {
    model::Model model;
    checkpoint::ParameterSource read;
  };
  std::optional<Values> values;

  const model::Model& model() const;
  // "checkpoint runs/a/checkpoints/step-20" or "Hugging Face folder model", for people.
  std::string name() const;
  // float64 for checkpoints with float64 masters, else float32: the type that loses nothing.
  config::ComputeType exact_dtype() const;
  // Fills the masters; float64 ones are rounded where the store keeps float32. REQUIRES: a store of model().
  // The activity is told how far loading is.
  void load(runtime::ParameterStore& store, survive::Activity& activity);
};

// Adds the adapters of PEFT folders to the model, side by side (checkpoint/peft_folder.h), in their order.
// InputError as there, and if the model has adapters of its own.
void add_adapters(ModelSource& model, const std::vector<std::filesystem::path>& folders);

// The end-of-text tokens in the files of a model's folder; empty if the files have none.
std::vector<int64_t> end_tokens_in(const storage::Location& folder);

// A folder with config.json and weights, else as open_newest_whole. InputError if it is neither.
ModelSource open_model(const storage::Location& location);

}  // namespace sluice::run

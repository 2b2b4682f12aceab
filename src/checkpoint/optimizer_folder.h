// The folder `optimizer` of an exported model, from which another run resumes where the exported one stood.
// It has both AdamW moments under the tensors' Hugging Face names, the masters if the weights were rounded
// from them, and state.json (docs/formats.md, "Optimiser state").
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"

namespace sluice::checkpoint {

// Whether the model in `folder` has an optimizer folder.
bool has_optimizer(const std::filesystem::path& folder);

// Writes the optimizer folder beside the weights in `folder`, which were exported with the same options.
// state.json holds the hashes of all of these files. InputError if the checkpoint's states are float64, or if
// the model has frozen parameters or adapters.
void write_optimizer(const std::filesystem::path& folder, Checkpoint& checkpoint,
                     const ExportOptions& options);

// An optimizer folder opened for reading. Valid as long as the model.
class OptimizerFolder {
 public:
  // InputError naming the file, the fault and the way out if the folder is incomplete or belongs to another
  // model, or if files' hashes differ from those in state.json.
  explicit OptimizerFolder(const HuggingFaceModel& model);

  // The run's step, sampler, corpora, calibration and config. A state written by another program may have the
  // step alone.
  const Manifest& run() const { return run_; }

  // Elements `interval` of a bucket's flat array, as float32. InputError naming the file if an element is not
  // finite, or a second moment is negative.
  void read(int bucket, base::Interval interval, State state, float* values) const;

 private:
  const HuggingFaceModel& model_;
  Manifest run_;
  std::optional<TensorFolder> masters_;  // none: the model's weights are the masters
  TensorFolder exp_avg_;
  TensorFolder exp_avg_sq_;
};

}  // namespace sluice::checkpoint

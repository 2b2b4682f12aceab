// The folder `optimizer` of an exported model: what another run needs beside the weights to go on where the
// exported one stood. Both moments of AdamW under the tensors' Hugging Face names, the masters where the
// weights were rounded from them, and state.json (docs/formats.md, "Optimiser state").
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"

namespace sluice::checkpoint {

// Whether the model in `folder` has one.
bool has_optimizer(const std::filesystem::path& folder);

// Writes it beside the weights that lie in `folder`, exported by the same options. state.json holds the
// hashes of all of these files. InputError when the checkpoint's states are float64, which these files do not
// hold.
void write_optimizer(const std::filesystem::path& folder, Checkpoint& checkpoint,
                     const ExportOptions& options);

// One opened for reading. Valid as long as the model.
class OptimizerFolder {
 public:
  // InputError naming file, fault and way out when it is incomplete, of another model, or the files are not
  // those that state.json was written for.
  explicit OptimizerFolder(const HuggingFaceModel& model);

  // Of the run: step, sampler, corpora, calibration and config. A state that another program wrote may lack
  // all but the step.
  const Manifest& run() const { return run_; }

  // Elements `interval` of a bucket's flat array, as float32. InputError naming the file when one is not
  // finite, or a second moment is negative.
  void read(int bucket, base::Interval interval, State state, float* values) const;

 private:
  const HuggingFaceModel& model_;
  Manifest run_;
  std::optional<TensorFolder> masters_;  // none: the model's weights are
  TensorFolder exp_avg_;
  TensorFolder exp_avg_sq_;
};

}  // namespace sluice::checkpoint

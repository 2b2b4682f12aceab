// Converts between checkpoints and Hugging Face folders without a model in memory (`export`, `import`).
#pragma once

#include <filesystem>

#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"

namespace sluice::checkpoint {

// The checkpoint's masters by buckets of its plain_table(); float64 is rounded to float32. Valid as long as
// the checkpoint.
ParameterSource float_masters(Checkpoint& checkpoint);

// The parts of a checkpoint or folder to convert.
enum class Contents {
  kWeights,
  kTraining,  // also optimizer state and the run's position in its data (checkpoint/optimizer_folder.h)
};

// Writes the checkpoint's masters, adapters merged, with its companions or those of `options`, as a Hugging
// Face folder. Errors as in export_hugging_face, Checkpoint::read and write_optimizer.
void export_checkpoint(Checkpoint& checkpoint, const std::filesystem::path& folder,
                       const ExportOptions& options = {}, Contents contents = Contents::kWeights);

// Writes the checkpoint's adapters alone; `base` names their base model.
void export_adapters(Checkpoint& checkpoint, const std::filesystem::path& folder, const std::string& base,
                     const ExportOptions& options = {});

// Writes the model and its companions as a committed checkpoint of one rank with float32 masters. By default
// it is `root`/step-0 with zero Adam states. With kTraining and an optimizer state in the folder it is
// `root`/step-N of that state's step. Returns the directory; a failure leaves none. InputError if a weight is
// not finite or the state does not fit (OptimizerFolder), RunError on a full or unwritable disk.
std::filesystem::path import_checkpoint(const HuggingFaceModel& model, const std::filesystem::path& root,
                                        Contents contents = Contents::kTraining);

}  // namespace sluice::checkpoint

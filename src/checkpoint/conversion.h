// Between checkpoints and Hugging Face folders, without a model in memory: what `export` and `import` do.
#pragma once

#include <filesystem>

#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"

namespace sluice::checkpoint {

// By buckets of its plain_table(): the checkpoint's masters; float64 ones are rounded to float32. Valid as
// long as the checkpoint.
ParameterSource float_masters(Checkpoint& checkpoint);

// What of a checkpoint, or of a folder, is converted.
enum class Contents {
  kWeights,
  kTraining,  // and the optimiser's state (checkpoint/optimizer_folder.h), with the run's place in its data
};

// The checkpoint's masters, adapters merged into what they adapt, with its companions, or those of `options`,
// as a Hugging Face folder. Errors as in export_hugging_face, Checkpoint::read and write_optimizer.
void export_checkpoint(Checkpoint& checkpoint, const std::filesystem::path& folder,
                       const ExportOptions& options = {}, Contents contents = Contents::kWeights);

// The checkpoint's adapters alone.
void export_adapters(Checkpoint& checkpoint, const std::filesystem::path& folder, const std::string& base,
                     const ExportOptions& options = {});

// The model and its companions as a committed checkpoint, written as by one rank, with float32 masters:
// `root`/step-0 with Adam states zero, or with the folder's optimiser state, if it has one and that is asked
// for, `root`/step-N, N being the state's step. Returns the directory; a failure leaves none. InputError when
// a weight is not finite or the state does not fit (OptimizerFolder), RunError on a full or unwritable disk.
std::filesystem::path import_checkpoint(const HuggingFaceModel& model, const std::filesystem::path& root,
                                        Contents contents = Contents::kTraining);

}  // namespace sluice::checkpoint

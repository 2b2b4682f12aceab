// Between checkpoints and Hugging Face folders, without a model in memory: what `export` and `import` do.
#pragma once

#include <filesystem>

#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"

namespace sluice::checkpoint {

// The checkpoint's masters; float64 ones are rounded to float32. Valid as long as the checkpoint.
ParameterSource float_masters(Checkpoint& checkpoint);

// The checkpoint's masters, with its companions, as a Hugging Face folder. Errors as in export_hugging_face
// and Checkpoint::read.
void export_checkpoint(Checkpoint& checkpoint, const std::filesystem::path& folder,
                       const ExportOptions& options = {});

// The model and its companions as a committed checkpoint `root`/step-0: float32 masters, Adam states zero,
// written as by one rank. Returns its directory; a failure leaves none. InputError when a weight is not
// finite, RunError on a full or unwritable disk.
std::filesystem::path import_checkpoint(const HuggingFaceModel& model, const std::filesystem::path& root);

}  // namespace sluice::checkpoint

// Owner slices to and from checkpoints, on any number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/load.h"
#include "corpus/identity.h"
#include "corpus/sampler.h"
#include "runtime/parameter_store.h"

namespace sluice::train {

// What a checkpoint says beside the parameters.
struct RunState {
  int64_t step = 0;                             // steps done; the next step's number
  std::optional<corpus::SamplerState> sampler;  // none in imported models: data are skipped up to `step`
  std::vector<corpus::CorpusIdentity> corpora;  // trained on; none in imported models and by older programs
  base::Json calibration;
  std::string config;                             // resolved TOML
  std::vector<checkpoint::Companion> companions;  // on rank 0 alone, which writes them
};

// Of the masters and Adam states of runs that compute so.
checkpoint::TensorType master_type(const runtime::Precision& precision);

// The checkpoints that `resume` may mean, the newest first: "" none; "auto" those under the roots, perhaps
// none, of one step in the roots' order; else a directory with a manifest, or those in a directory that holds
// step-N directories. InputError when there is none in it.
std::vector<std::filesystem::path> find_checkpoints(const std::string& resume,
                                                    std::span<const std::filesystem::path> roots);

// The newest whole checkpoint that `path` means, all of its files checked; warns of those passed over.
// DamagedCheckpoint when there is no whole one, InputError as find_checkpoints.
std::unique_ptr<checkpoint::Checkpoint> open_newest_whole(const std::filesystem::path& path);

// "runs/a/checkpoints/step-20 is passed over: ", and why.
std::string passed_over(const std::filesystem::path& directory, const std::string& fault);

// Fills the owner slices. InputError as checkpoint::Checkpoint.
void load_parameters(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store);
// DamagedCheckpoint when the sampler's state or the corpora are none, or of another step.
RunState run_state(const checkpoint::Checkpoint& checkpoint);

}  // namespace sluice::train

// Owner slices to and from checkpoints, on any number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "checkpoint/load.h"
#include "corpus/sampler.h"
#include "runtime/parameter_store.h"
#include "train/control.h"

namespace sluice::train {

// What a checkpoint says beside the parameters.
struct RunState {
  int64_t step = 0;                             // steps done; the next step's number
  std::optional<corpus::SamplerState> sampler;  // none in imported models: data begin anew
  base::Json calibration;
  std::string config;  // resolved TOML
};

// Collective. Every rank writes its slices, rank 0 commits; then all but `keep` are removed. Throws on every
// rank when any rank failed; what was saved before stays.
void save_checkpoint(Control& control, const runtime::ParameterStore& store, const RunState& state,
                     const std::filesystem::path& root, int keep);

// The checkpoint that `resume` means: "" none; "auto" the newest under `root`, none if there is none; else a
// directory with a manifest, or one that holds step-N directories. InputError when there is none in it.
std::optional<std::filesystem::path> find_checkpoint(const std::string& resume,
                                                     const std::filesystem::path& root);

// Fills the owner slices. InputError as checkpoint::Checkpoint.
void load_parameters(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store);
RunState run_state(const checkpoint::Checkpoint& checkpoint);

}  // namespace sluice::train

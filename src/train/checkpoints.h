// Owner slices to and from checkpoints, on any number of ranks.
#pragma once

#include <cstdint>
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

// The checkpoints that `resume` may mean, the newest first: a directory with a manifest, or those in a
// directory that holds step-N directories. InputError when there is none in it.
std::vector<storage::Location> find_checkpoints(const storage::Location& resume);

// Those under the roots, the newest first, of one step in the roots' order; perhaps none. A root but the
// first that cannot be looked at is passed over with a warning, if others have one: RunError or InputError
// otherwise.
std::vector<storage::Location> all_checkpoints(std::span<const storage::Location> roots);

// The newest whole checkpoint that `location` means, all of its files checked, or in a bucket looked through;
// warns of those passed over. DamagedCheckpoint when there is no whole one, InputError as find_checkpoints.
std::unique_ptr<checkpoint::Checkpoint> open_newest_whole(const storage::Location& location);

// "runs/a/checkpoints/step-20 is passed over: ", and why.
std::string passed_over(const storage::Location& directory, const std::string& fault);

// Fills the owner slices. InputError as checkpoint::Checkpoint.
void load_parameters(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store);
// DamagedCheckpoint when the sampler's state or the corpora are none, or of another step.
RunState run_state(const checkpoint::Checkpoint& checkpoint);

}  // namespace sluice::train

// Owner slices and the run's state from checkpoints, on any number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "config/run_config.h"
#include "corpus/identity.h"
#include "corpus/sampler.h"
#include "runtime/parameter_store.h"
#include "survive/activity.h"

namespace sluice::run {

// The state of a run that a checkpoint keeps beside the parameters.
struct RunState {
  int64_t step = 0;                             // steps done; the next step's number
  std::optional<corpus::SamplerState> sampler;  // none in imported models: data are skipped up to `step`
  base::Json rollout;  // state that a rollout leaves for later steps (rl/episode.h); null: none
  std::vector<corpus::CorpusIdentity> corpora;  // trained on; none in imported models and by older programs
  base::Json calibration;
  base::Json evaluation;                          // BestEvaluation; null: none was made
  std::string config;                             // resolved TOML
  std::vector<checkpoint::Companion> companions;  // on rank 0 alone, which writes them
};

checkpoint::Retention retention_of(const config::CheckpointConfig& config);

// The checkpoint's type of masters and Adam states under that precision.
checkpoint::TensorType master_type(const runtime::Precision& precision);

// Fills the owner slices. InputError as checkpoint::Checkpoint.
void load_parameters(checkpoint::Checkpoint& checkpoint, runtime::ParameterStore& store,
                     survive::Activity& activity);
// DamagedCheckpoint if the sampler's state or the corpora cannot be read, or belong to another step.
RunState run_state(const checkpoint::Checkpoint& checkpoint);

}  // namespace sluice::run

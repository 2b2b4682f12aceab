// Models beside the one that a run trains: rewards that were learnt and a teacher, which stay as they are,
// and the critic of PPO.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "cost/cost_model.h"
#include "model/head_chunk_rows.h"
#include "model/shape.h"

namespace sluice::session {

struct OtherModel {
  std::string key;               // of the configuration
  std::filesystem::path folder;  // empty: drawn by chance
  model::Shape shape;
  bool trained = false;
  bool leaves_rows = false;  // a teacher: rows and its output matrix in place of losses
  model::Divergence divergence = model::Divergence::kForwardKl;  // of a teacher
  // Of a teacher whose files pad the vocabulary to other rows than the run's model has: rows that both have,
  // over which distributions are taken. `shape` has the run's rows then. 0: the files have them, too.
  int64_t common_rows = 0;
};

// One for each "model:FOLDER" in rl.reward. InputError naming key and folder where there is no model, or none
// that scores a text by one number, or it has fewer rows than the run's model has tokens.
std::vector<OtherModel> reward_models(const config::RunConfig& config);
// teacher.hf's; none where it is empty. InputError likewise where the run learns from something else. Whether
// other rows than the run's only pad the vocabulary, a run asks before it begins (run/other_tokenizers.h).
std::vector<OtherModel> teachers(const config::RunConfig& config);
// rl.critic's, or the run's own model's, with a value of each token in place of its end; none without
// rl.algorithm = "ppo". InputError as of reward models.
std::vector<OtherModel> critics(const config::RunConfig& config);
// All of them.
std::vector<OtherModel> other_models(const config::RunConfig& config);

// What a rank keeps of a parameter that it owns: a number as wide as it computes, or all that an optimizer keeps, and
// such a number where masters are wider.
int64_t owned_parameter_bytes(const OtherModel& model, const cost::MemoryModel& memory);
// The bytes that a rank of so many has of them all through a run: those of what it owns, and tables.
int64_t other_bytes(const std::vector<OtherModel>& models, const cost::MemoryModel& memory, int world_size);

// Whether the run keeps the parameters that it began with, to stay near them or to compare with them.
bool needs_reference(const config::RlConfig& rl);

// The bytes that a rank of so many owns beside the trained model, in every act of a step: other models, and
// the masters of a reference.
int64_t bytes_beside(const config::RunConfig& config, const cost::MemoryModel& memory, int world_size);
// Takes them off what plans may use of a device, where that is known; returns them. InfeasibleError where
// nothing is left.
int64_t leave_room_beside(const config::RunConfig& config, cost::MemoryModel& memory, int world_size);

}  // namespace sluice::session

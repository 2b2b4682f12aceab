// Models beside the trained one: reward models and teachers, which are frozen, and the critic of
// PPO.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "cost/cost_model.h"
#include "model/head_chunk_rows.h"
#include "model/model.h"

namespace sluice::session {

struct OtherModel {
  std::string act;               // its act's name in metrics and reports
  std::string key;               // its key in the configuration
  std::filesystem::path folder;  // empty: random parameters
  model::Model value;
  bool trained = false;
  bool leaves_rows = false;  // a teacher: rows and its output matrix instead of losses
  model::Divergence divergence = model::Divergence::kForwardKl;  // for a teacher
  // For a teacher whose files pad the vocabulary to another size: the rows that both models have, over which
  // distributions are taken; `value` has the run's rows then. 0: both have the same rows.
  int64_t common_rows = 0;
};

// One for each "model:FOLDER" in rl.reward. InputError naming key and folder if the folder has no model, the
// model does not score a text by one number, or it has fewer rows than the run's model has tokens.
std::vector<OtherModel> reward_models(const config::RunConfig& config);
// teacher.hf's models, their matrices in teacher.base. InputError likewise, if the run learns from something
// else, or if teacher.weights are not one for each. A run checks before it begins that different rows are
// only padding (run/other_tokenizers.h).
std::vector<OtherModel> teachers(const config::RunConfig& config);
// The part of each teacher's divergence in their sum, 1 in all. REQUIRES: as teachers().
std::vector<double> teacher_weights(const config::TeacherConfig& teacher);
// rl.critic's model, or else the run's own, with a head that gives a value for each token; empty without
// rl.algorithm = "ppo". InputError as for reward models.
std::vector<OtherModel> critics(const config::RunConfig& config);
// All models beside the trained one.
std::vector<OtherModel> other_models(const config::RunConfig& config);

// The bytes of a parameter on its owner. Frozen: one number as wide as ranks compute. Trained: all of the
// optimizer's numbers, and a narrow copy if masters are wider.
int64_t owned_parameter_bytes(const OtherModel& model, const cost::MemoryModel& memory);
// The bytes that each of so many ranks has of the models throughout a run: owned parameters, and tables.
int64_t other_bytes(const std::vector<OtherModel>& models, const cost::MemoryModel& memory, int world_size);

// Whether the run keeps its initial parameters, to stay near them or to compare with them.
bool needs_reference(const config::RlConfig& rl);

// The bytes that each of so many ranks owns beside the trained model, in every act of a step: other models,
// and the masters of a reference and of adapters that evaluations try.
int64_t bytes_beside(const config::RunConfig& config, const cost::MemoryModel& memory, int world_size);
// Subtracts bytes_beside() from the device memory of plans, if that is known, and returns them.
// InfeasibleError if nothing is left.
int64_t leave_room_beside(const config::RunConfig& config, cost::MemoryModel& memory, int world_size);

}  // namespace sluice::session

// Models beside the one that a run trains: rewards that were learnt and a teacher, which stay as they are,
// and the critic of PPO.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "cost/cost_model.h"
#include "model/shape.h"
#include "session/data.h"

namespace sluice::session {

struct OtherModel {
  std::string key;               // of the configuration
  std::filesystem::path folder;  // empty: drawn by chance
  model::Shape shape;
  bool trained = false;
};

// One for each "model:FOLDER" in rl.reward. InputError naming key and folder where there is no model, or none
// that scores a text by one number, or it has fewer rows than the run's model has tokens.
std::vector<OtherModel> reward_models(const config::RunConfig& config);
// teacher.hf's; none where it is empty. InputError likewise where it has another vocabulary than the run's
// model, or the run learns from something else.
std::vector<OtherModel> teachers(const config::RunConfig& config);
// rl.critic's, or the run's own model's, with a value of each token in place of its end; none without
// rl.algorithm = "ppo". InputError as of reward models.
std::vector<OtherModel> critics(const config::RunConfig& config);
// All of them.
std::vector<OtherModel> other_models(const config::RunConfig& config);

// InputError naming an id and its two texts where the folder has another tokenizer than the run's documents.
void require_tokenizer(const OtherModel& model, const Data& data);

// The bytes that a rank of so many owns of them: numbers as wide as it computes, or all that an optimizer
// keeps.
int64_t other_bytes(const std::vector<OtherModel>& models, const cost::MemoryModel& memory, int world_size);

}  // namespace sluice::session

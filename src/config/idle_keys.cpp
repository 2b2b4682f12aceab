#include "config/idle_keys.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "config/keys.h"
#include "config/learnt_rewards.h"

namespace sluice::config {
namespace {

using base::text;

// A key and the condition under which it has an effect.
struct Need {
  const char* key;
  bool (*met)(const RunConfig& config);
  const char* place;  // says when the key has an effect, for messages
};

bool is_ppo(const RunConfig& config) { return config.rl.algorithm == RlAlgorithm::kPpo; }
bool prefers(const RunConfig& config) { return config.rl.prefers(); }
bool is_kto(const RunConfig& config) { return config.rl.algorithm == RlAlgorithm::kKto; }
bool compares_groups(const RunConfig& config) { return config.rl.rolls_out() && !is_ppo(config); }
bool rolls_out(const RunConfig& config) { return config.rl.rolls_out(); }
bool generates(const RunConfig& config) { return config.generates(); }
bool decodes(const RunConfig& config) { return config.generates() || config.train.sample_every > 0; }
bool has_reward_models(const RunConfig& config) {
  return config.rl.rolls_out() && !learnt_rewards(config.rl.reward).empty();
}
bool has_teacher(const RunConfig& config) { return !config.teacher.hf.empty(); }
bool trains_mtp(const RunConfig& config) { return config.train.mtp == MtpUse::kTrain; }
bool has_teachers(const RunConfig& config) { return config.teacher.hf.size() > 1; }
bool mixes(const RunConfig& config) {
  return has_teacher(config) && config.teacher.divergence == Divergence::kJsd;
}

constexpr const char* kPpo = "with rl.algorithm = \"ppo\"";
constexpr const char* kPreferences = "with rl.algorithm \"dpo\" or \"kto\"";
constexpr const char* kKto = "with rl.algorithm = \"kto\"";
constexpr const char* kTeacher = "beside teacher.hf";
constexpr const char* kRollouts = "where rl.algorithm has rollouts";

constexpr Need kRlNeeds[] = {
    {"baseline", compares_groups,
     "where responses to a prompt are compared: with grpo, dapo, dr_grpo or reinforce"},
    {"reward_base", has_reward_models, "beside a \"model:FOLDER\" in rl.reward"},
    {"critic", is_ppo, kPpo},
    {"critic_lr", is_ppo, kPpo},
    {"gamma", is_ppo, kPpo},
    {"gae_lambda", is_ppo, kPpo},
    {"value_clip", is_ppo, kPpo},
    {"rejected", prefers, kPreferences},
    {"beta", prefers, kPreferences},
    {"desirable_weight", is_kto, kKto},
    {"undesirable_weight", is_kto, kKto},
};
constexpr Need kTrainNeeds[] = {{"mtp_loss_weight", trains_mtp, "with train.mtp = \"train\""}};
constexpr Need kTeacherNeeds[] = {
    {"divergence", has_teacher, kTeacher},
    {"beta", mixes, "beside teacher.hf with teacher.divergence = \"jsd\""},
    {"temperature", has_teacher, kTeacher},
    {"alpha", has_teacher, kTeacher},
    {"lmbda", has_teacher, kTeacher},
    {"base", has_teacher, kTeacher},
    {"weights", has_teachers, "beside several folders in teacher.hf"},
};
constexpr Need kGenerationNeeds[] = {
    {"gen_batch_size", rolls_out, kRollouts},
    {"num_generations", rolls_out, kRollouts},
    {"updates_per_rollout", rolls_out, kRollouts},
    {"max_completion_length", generates, "where rl.algorithm has rollouts, or with teacher.lmbda"},
    {"temperature", rolls_out, kRollouts},
    {"loss_agg_mode", rolls_out, kRollouts},
    {"clip_low", rolls_out, kRollouts},
    {"clip_high", rolls_out, kRollouts},
    {"dual_clip", rolls_out, kRollouts},
    {"kl", rolls_out, kRollouts},
    {"dynamic_sampling", rolls_out, kRollouts},
    {"max_resamples", rolls_out, kRollouts},
    {"overlong_buffer", rolls_out, kRollouts},
    {"kv_cache_gib", decodes, "where text is generated"},
    {"max_num_seqs", decodes, "where text is generated"},
    {"rollout_strategy", decodes, "where text is generated"},
};

toml::table written(RunConfig config, std::string_view name) {
  FieldWriter writer;
  for (const Section& section : sections()) {
    if (section.name == name) section.visit(config, writer);
  }
  return std::move(writer.table);
}

// Keys of a section with unmet conditions and values other than the defaults.
template <size_t N>
std::vector<std::string> idle_lines(const RunConfig& config, const char* section, const Need (&needs)[N]) {
  const toml::table own = written(config, section), usual = written(RunConfig(), section);
  std::vector<std::string> lines;
  for (const Need& need : needs) {
    const std::string value = shown(own.get(need.key));
    if (need.met(config) || value == shown(usual.get(need.key))) continue;
    lines.push_back(text(section, ".", need.key, " is ", value, ", which has an effect only ", need.place));
  }
  return lines;
}

}  // namespace

void refuse_idle_keys(const RunConfig& config) {
  std::vector<std::string> lines = idle_lines(config, "rl", kRlNeeds);
  std::ranges::move(idle_lines(config, "train", kTrainNeeds), std::back_inserter(lines));
  std::ranges::move(idle_lines(config, "teacher", kTeacherNeeds), std::back_inserter(lines));
  if (config.teacher.alpha < 1 && config.teacher.lmbda > 0) {
    lines.push_back(text("teacher.alpha is ", config.teacher.alpha, " and teacher.lmbda ",
                         config.teacher.lmbda,
                         ", but a response that the model sampled itself has no tokens to imitate"));
  }
  if (!lines.empty()) throw base::InputError(text("[config] ", lines.front(), ": leave it out"));
}

std::vector<std::string> idle_generation_keys(const RunConfig& config) {
  return idle_lines(config, "rl", kGenerationNeeds);
}

}  // namespace sluice::config

#include "session/other_models.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "config/learnt_rewards.h"
#include "cost/link_buffers.h"
#include "model/head_keys.h"
#include "model/hugging_face.h"
#include "model/parameters.h"
#include "model/tuning.h"

namespace sluice::session {
namespace {

using base::InputError;
using base::text;

OtherModel opened(const std::string& act, const std::string& key, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  if (!std::filesystem::exists(path)) {
    throw InputError(text("[config] ", key, " names ", folder.string(), ", which has no config.json: give ",
                          "a model's folder, as `sluice export` writes it"));
  }
  return {.act = act,
          .key = key,
          .folder = folder,
          .value = model::model_from_hugging_face(base::read_python_json(path), path.string())};
}

void code(OtherModel& model, base::WeightFormat format, const config::RunConfig& config, const char* key) {
  model.value =
      model::coded(model.value, {format, config::word_bytes(config.train.dtype)}, text("[config] ", key));
}

void require_one_number(const OtherModel& model) {
  const model::HeadStyle& head = model.value.head();
  if (head.kind == model::HeadKind::kSequence && head.numbers == 1) return;
  const std::string end = head.kind == model::HeadKind::kVocabulary ? "a vocabulary"
                          : head.kind == model::HeadKind::kRows     ? "embeddings"
                          : head.kind == model::HeadKind::kTokens
                              ? text(head.numbers, " numbers of each token")
                              : text(head.numbers, " labels");
  throw InputError(text("[config] ", model.key, " names ", model.folder.string(), ", which ends in ", end,
                        ", but a reward is one number of a text: give a model with one label, as ",
                        "head.kind = \"reward\" trains it"));
}

void require_rows(const OtherModel& model, const config::RunConfig& config) {
  const int64_t own = model.value.vocab(), needed = config.model.resolved->vocab();
  if (own >= needed) return;
  throw InputError(text("[config] ", model.key, " names ", model.folder.string(), ", which has rows for ",
                        own, " tokens, but the model that is trained has ", needed,
                        ": give one of the same tokenizer"));
}

void refuse_beside_teacher(const config::RunConfig& config) {
  const auto refuse = [](const std::string& key) {
    throw InputError(
        text("[config] teacher.hf and ", key, " are both objectives of training: leave one of them out"));
  };
  if (config.rl.algorithm != config::RlAlgorithm::kNone) refuse("rl.algorithm");
  if (config.head.kind != config::HeadUse::kNone) refuse("head.kind");
  if (config.train.z_loss > 0) refuse("train.z_loss");
}

void require_weights(const config::TeacherConfig& teacher) {
  if (teacher.weights.empty() || teacher.weights.size() == teacher.hf.size()) return;
  throw InputError(text(
      "[config] teacher.weights has ", base::human_count(std::ssize(teacher.weights), "number", "numbers"),
      ", but teacher.hf names ", base::human_count(std::ssize(teacher.hf), "folder", "folders"),
      ": give one number for each, or none"));
}

// Gives the teacher the run's rows: drops rows that only pad its vocabulary, and adds rows that it lacks.
void match_rows(OtherModel& teacher, int64_t rows) {
  if (teacher.value.vocab() == rows) return;
  teacher.common_rows = std::min(teacher.value.vocab(), rows);
  teacher.value = model::with_vocab(teacher.value, rows);
}

}  // namespace

std::vector<OtherModel> reward_models(const config::RunConfig& config) {
  std::vector<OtherModel> models;
  if (!config.rl.rolls_out()) return models;
  for (const std::string& folder : config::learnt_rewards(config.rl.reward)) {
    models.push_back(opened("rewards", "rl.reward", folder));
    require_one_number(models.back());
    require_rows(models.back(), config);
    code(models.back(), config.rl.reward_base, config, "rl.reward_base");
  }
  return models;
}

std::vector<OtherModel> teachers(const config::RunConfig& config) {
  const config::TeacherConfig& own = config.teacher;
  std::vector<OtherModel> models;
  if (own.hf.empty()) return models;
  refuse_beside_teacher(config);
  require_weights(own);
  for (const std::string& folder : own.hf) {
    const std::string act = own.hf.size() == 1 ? "teacher" : text("teacher ", models.size() + 1);
    OtherModel& teacher = models.emplace_back(opened(act, "teacher.hf", folder));
    if (!teacher.value.has_vocabulary()) {
      throw InputError(
          text("[config] teacher.hf names ", folder, ", which ends in no vocabulary: give a language model"));
    }
    teacher.leaves_rows = true;
    teacher.divergence = own.divergence;
    match_rows(teacher, config.model.resolved->vocab());
    code(teacher, own.base, config, "teacher.base");
  }
  return models;
}

std::vector<double> teacher_weights(const config::TeacherConfig& teacher) {
  std::vector<double> weights = teacher.weights;
  weights.resize(teacher.hf.size(), 1.0);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::vector<OtherModel> critics(const config::RunConfig& config) {
  if (config.rl.algorithm != config::RlAlgorithm::kPpo) return {};
  const std::string folder = config.rl.critic.empty() ? config.model.hf : config.rl.critic;
  OtherModel critic = folder.empty()
                          ? OtherModel{"critic", "rl.critic", {}, model::untuned(*config.model.resolved)}
                          : opened("critic", "rl.critic", folder);
  require_rows(critic, config);
  critic.value = model::with_head(critic.value, {model::HeadKind::kTokens, 1, /*bias=*/true}, {});
  critic.trained = true;
  return {std::move(critic)};
}

std::vector<OtherModel> other_models(const config::RunConfig& config) {
  std::vector<OtherModel> models = reward_models(config);
  for (auto found : {teachers(config), critics(config)}) std::ranges::move(found, std::back_inserter(models));
  return models;
}

int64_t owned_parameter_bytes(const OtherModel& model, const cost::MemoryModel& memory) {
  if (!model.trained) return memory.element_bytes;
  return memory.owner_bytes_per_parameter + cost::narrow_copies_bytes(memory, 1);
}

int64_t other_bytes(const std::vector<OtherModel>& models, const cost::MemoryModel& memory, int world_size) {
  // Each model has tables of its own, too.
  int64_t bytes = std::ssize(models) * cost::kSmallTensorBytes;
  for (const OtherModel& model : models) {
    const int64_t of_parameter = owned_parameter_bytes(model, memory);
    for (const model::Bucket& bucket : model::parameter_table(model.value).buckets)
      bytes += (bucket.size + world_size - 1) / world_size * of_parameter;
  }
  return bytes;
}

bool needs_reference(const config::RlConfig& rl) { return rl.prefers() || (rl.rolls_out() && rl.kl > 0); }

int64_t bytes_beside(const config::RunConfig& config, const cost::MemoryModel& memory, int world_size) {
  int64_t bytes = other_bytes(other_models(config), memory, world_size);
  const int64_t copies = (needs_reference(config.rl) ? 1 : 0) + std::ssize(config.train.eval_adapters);
  if (copies == 0) return bytes;
  for (const model::Bucket& bucket : model::parameter_table(*config.model.resolved).buckets) {
    if (!bucket.trained) continue;
    bytes += copies * ((bucket.size + world_size - 1) / world_size) * memory.kept_master_bytes();
  }
  return bytes;
}

int64_t leave_room_beside(const config::RunConfig& config, cost::MemoryModel& memory, int world_size) {
  const int64_t beside = bytes_beside(config, memory, world_size);
  if (beside == 0 || memory.device_bytes == 0) return beside;
  if (beside >= memory.device_bytes) {
    const auto bytes = [](int64_t value) { return base::human_bytes(static_cast<double>(value)); };
    throw base::InfeasibleError(base::text(needs_reference(config.rl)
                                               ? "the reference (rl.kl), reward models and critic take "
                                               : "reward models, teachers and critic take ",
                                           bytes(beside), " of each of ", world_size, " ranks, which have ",
                                           bytes(memory.device_bytes), ": give smaller ones, or more ranks"));
  }
  memory.device_bytes -= beside;
  return beside;
}

}  // namespace sluice::session

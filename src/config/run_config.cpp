#include "config/run_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "config/read_sections.h"
#include "model/hugging_face.h"
#include "model/tuning.h"

namespace sluice::config {

using base::InputError;
using base::text;

namespace {

// "section.key=value" -> root[section][key].
void apply_override(toml::table& root, const std::string& setting) {
  const size_t equals = setting.find('=');
  const size_t dot = setting.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw InputError(text("[config] --set ", setting, ": expected section.key=value"));
  }
  const std::string section = setting.substr(0, dot);
  const std::string key = setting.substr(dot + 1, equals - dot - 1);
  const std::string value = setting.substr(equals + 1);
  toml::table parsed;
  try {
    parsed = base::parse_toml("value = " + value, "--set");
  } catch (const InputError&) {
    parsed.insert_or_assign("value", value);
  }
  if (parsed.size() != 1) {
    throw InputError(text("[config] --set ", setting, ": the value has more than one line: give one"));
  }
  if (!root.contains(section)) root.insert(section, toml::table{});
  toml::table* table = root[section].as_table();
  if (table == nullptr)
    throw InputError(text("[config] --set ", setting, ": '", section,
                          "' is a value: set a key of a section, as in train.steps=7"));
  table->insert_or_assign(key, *parsed.get("value"));
}

}  // namespace

RunConfig parse_config(const std::string& toml_text, const std::string& name,
                       const std::vector<std::string>& overrides) {
  toml::table root = base::parse_toml(toml_text, "[config] " + name);
  for (const std::string& setting : overrides) apply_override(root, setting);
  return read_sections(root, name);
}

RunConfig read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return parse_config(base::read_file(path), path.string(), overrides);
}

int64_t longest_context(const RunConfig& config) {
  int64_t longest = config.data.context_length;
  for (const PhaseConfig& phase : config.phases) longest = std::max(longest, phase.data.context_length);
  return longest;
}

int64_t reduce_bytes(const TrainConfig& train) { return train.reduce_dtype == "bfloat16" ? 2 : 0; }

bool goes_on(const DataConfig& before, const DataConfig& after) {
  return before.train == after.train && before.context_length == after.context_length &&
         before.overflow == after.overflow && before.seed == after.seed;
}

namespace {

// What of the shape is trained.
void tune(RunConfig& config) {
  model::Shape& shape = *config.model.shape;
  model::adapt(shape, {config.lora.rank, config.lora.alpha, config.lora.targets});
  model::freeze(shape, config.train.freeze);
  if (config.optimizer.groups.empty()) return;
  const std::vector<std::string> names = model::tensor_names(model::parameter_table(shape));
  for (const GroupConfig& group : config.optimizer.groups)
    model::require_matches(group.parameters, names, "optimizer.groups");
}

}  // namespace

void resolve_model(RunConfig& config, ModelUse use) {
  if (!config.model.hf.empty()) {
    const std::filesystem::path path = std::filesystem::path(config.model.hf) / "config.json";
    const base::Json json = base::read_json(path);
    config.model.shape = use == ModelUse::kPlan ? model::shape_to_plan_from_hugging_face(json, path.string())
                                                : model::shape_from_hugging_face(json, path.string());
  } else {
    config.model.shape = model::untuned(*config.model.shape);
  }
  tune(config);
}

}  // namespace sluice::config

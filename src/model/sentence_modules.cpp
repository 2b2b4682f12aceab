#include "model/sentence_modules.h"

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "model/families/family.h"
#include "model/families/head.h"

namespace sluice::model {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Json;
using base::text;

// Extracts "Pooling" from "sentence_transformers.models.Pooling", in whichever module a version has it.
std::string kind_of(const Json& module, const std::string& name) {
  const auto type = base::require<std::string>(module, "type", name);
  return type.substr(type.rfind('.') + 1);
}

// Reads "mean" from a module's config.json: one flag of several, or since version 5 a name.
Pooling named_pooling(const Json& config, const fs::path& path) {
  const std::pair<const char*, Pooling> flags[] = {{"pooling_mode_cls_token", Pooling::kCls},
                                                   {"pooling_mode_mean_tokens", Pooling::kMean},
                                                   {"pooling_mode_lasttoken", Pooling::kLast}};
  const std::pair<const char*, Pooling> names[] = {
      {"cls", Pooling::kCls}, {"mean", Pooling::kMean}, {"lasttoken", Pooling::kLast}};
  if (const Json* const named = base::find(config, "pooling_mode"); named != nullptr) {
    for (const auto& [name, pooling] : names) {
      if (*named == name) return pooling;
    }
    throw InputError(text(path.string(), ": pooling_mode is ", base::excerpt(*named),
                          ", and Sluice pools by cls, mean or lasttoken"));
  }
  std::string on;
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    if (!on.empty())
      throw InputError(text(path.string(), ": ", on, " and ", key, " are both on, and Sluice pools one way"));
    on = key;
  }
  for (const auto& [key, pooling] : flags) {
    if (on == key) return pooling;
  }
  throw InputError(text(path.string(), ": ", on.empty() ? "no pooling_mode is on" : on + " is on",
                        ", and Sluice pools by the first token, the mean of all or the last token"));
}

Pooling pooling_of(const fs::path& path) {
  const Json config = base::read_json(path);
  const Pooling pooling = named_pooling(config, path);
  const Json* const included = base::find(config, "include_prompt");
  if (pooling == Pooling::kMean && included != nullptr && *included == false)
    throw InputError(text(path.string(),
                          ": include_prompt is false, and Sluice's means are over the tokens of an "
                          "instruction, too: set it to true where texts have none"));
  return pooling;
}

// Reads modules.json: the transformer in the folder itself, one pooling, and normalisations.
Pooling pooling_of_modules(const fs::path& folder, const fs::path& path) {
  const Json modules = base::read_json(path);
  const std::string name = path.string();
  std::optional<Pooling> pooling;
  if (!modules.is_array()) throw InputError(text(name, " is no list of modules: save the model again"));
  for (const Json& module : modules) {
    const std::string kind = kind_of(module, name);
    const auto place = base::get_or<std::string>(module, "path", "", name);
    if (kind == "Normalize" || (kind == "Transformer" && place.empty())) continue;
    if (kind == "Pooling" && !pooling) {
      pooling = pooling_of(folder / place / "config.json");
      continue;
    }
    throw InputError(
        text(name, ": the module ", kind, place.empty() ? "" : text(" in '", place, "'"),
             " is none that Sluice computes: a Transformer in the folder itself, a Pooling and a "
             "Normalize are"));
  }
  if (!pooling) throw InputError(text(name, " has no Pooling, which says what stands for a text: add one"));
  return *pooling;
}

}  // namespace

Json folder_config(const fs::path& folder) {
  Json config = base::read_python_json(folder / "config.json");
  const fs::path modules = folder / "modules.json";
  std::error_code ignored;
  if (!fs::exists(modules, ignored) || !config.is_object()) return config;
  const Json* const type = base::find(config, "model_type");
  const Family* const family =
      type != nullptr && type->is_string() ? family_of(type->get_ref<const std::string&>()) : nullptr;
  if (family == nullptr) return config;
  const Pooling pooling = pooling_of_modules(folder, modules);
  config["architectures"] = Json::array({class_of(*family, HeadKind::kRows)});
  config[kSentencePooling] = name_of(pooling);
  return config;
}

}  // namespace sluice::model

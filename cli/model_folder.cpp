#include "cli/model_folder.h"

#include <fstream>
#include <map>
#include <optional>
#include <regex>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/environment.h"
#include "config/config_file.h"
#include "corpus/python_child.h"

namespace sluice::cli {

using base::text;

namespace fs = std::filesystem;

namespace {

struct HubName {
  std::string name;      // ORGANISATION/NAME
  std::string revision;  // a branch, a tag or a commit; empty: main
};

std::optional<HubName> hub_name(const std::string& text) {
  static const std::regex form(R"(([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w./-]+))?)");
  std::smatch parts;
  if (!std::regex_match(text, parts, form)) return std::nullopt;
  return HubName{parts[1], parts[2]};
}

using Variables = std::map<std::string, std::string>;

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

// The hub's cache, found as by huggingface_hub.
fs::path hub_cache(const Variables& variables) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = value_of(variables, name); !cache.empty()) return cache;
  }
  if (const std::string home = value_of(variables, "HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const std::string caches = value_of(variables, "XDG_CACHE_HOME");
  const fs::path base = caches.empty() ? fs::path(value_of(variables, "HOME")) / ".cache" : fs::path(caches);
  return base / "huggingface" / "hub";
}

bool has_weights(const fs::path& snapshot) {
  std::error_code ignored;
  if (fs::exists(snapshot / "model.safetensors", ignored)) return true;
  const fs::path index = snapshot / "model.safetensors.index.json";
  if (!fs::exists(index, ignored)) return false;
  const base::Json json = base::read_python_json(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return false;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !fs::exists(snapshot / file.get<std::string>(), ignored)) return false;
  }
  return true;
}

// Whether the snapshot has these files, as far as its folder shows.
bool has(const fs::path& snapshot, HubFiles files) {
  std::error_code ignored;
  const auto is_there = [&](const char* name) { return fs::exists(snapshot / name, ignored); };
  if (files == HubFiles::kTokenizer)
    return is_there("tokenizer_config.json") && (is_there("tokenizer.json") || is_there("tokenizer.model"));
  return is_there("config.json") && (files == HubFiles::kConfiguration || has_weights(snapshot));
}

// The snapshot of that revision; empty if the cache has none.
fs::path cached_snapshot(const fs::path& cache, const HubName& hub) {
  std::string folder = "models--" + hub.name;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path model = cache / folder;
  const std::string revision = hub.revision.empty() ? "main" : hub.revision;
  std::string commit = revision;
  std::ifstream reference(model / "refs" / revision);
  if (reference) std::getline(reference, commit);
  const fs::path snapshot = model / "snapshots" / commit;
  std::error_code ignored;
  return !commit.empty() && fs::is_directory(snapshot, ignored) ? snapshot : fs::path();
}

bool is_offline(const Variables& variables) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    const std::string value = value_of(variables, name);
    if (!value.empty() && value != "0" && value != "false" && value != "no" && value != "off") return true;
  }
  return false;
}

const char* name_of(HubFiles files) {
  switch (files) {
    case HubFiles::kConfiguration: return "configuration";
    case HubFiles::kTokenizer: return "tokenizer";
    case HubFiles::kModel: break;
  }
  return "model";
}

std::string fetch(const HubName& hub, const fs::path& cache, HubFiles files) {
  base::log_info(text("fetching the ", name_of(files), " of ", hub.name, " from the Hugging Face hub into ",
                      cache.string()));
  corpus::PythonChild child(python_tools(), "hf_fetch.py",
                            {hub.name, hub.revision, cache.string(), name_of(files)}, hub.name);
  child.send_number<char>('F');
  child.check_status();
  return child.receive_text();
}

[[noreturn]] void refuse(const std::string& name, const fs::path& cache, const std::string& why) {
  throw base::InputError(text("model ", name, ": there is no such folder, ", cache.string(),
                              " has no copy of it, and ", why,
                              ": name a folder, or fetch the model where there is a network (hf download ",
                              hub_name(name)->name, ")"));
}

}  // namespace

std::string model_folder(const std::string& name, HubFiles files) {
  std::error_code ignored;
  const std::optional<HubName> hub = hub_name(name);
  if (!hub || fs::exists(name, ignored)) return name;
  const Variables variables = environment();
  const fs::path cache = hub_cache(variables);
  const fs::path snapshot = cached_snapshot(cache, *hub);
  if (!snapshot.empty() && has(snapshot, files)) return snapshot.string();
  if (is_offline(variables)) refuse(name, cache, "$HF_HUB_OFFLINE forbids to fetch it");
  try {
    return fetch(*hub, cache, files);
  } catch (const base::InputError& error) {
    refuse(name, cache, text("it could not be fetched: ", error.what()));
  }
}

config::RunConfig read_run_config(const fs::path& path, const std::vector<std::string>& settings,
                                  HubFiles files) {
  config::RunConfig config = config::read_config(path, settings);
  if (!config.model.hf.empty()) config.model.hf = model_folder(config.model.hf, files);
  return config;
}

session::PlanningOptions with_model_folder(session::PlanningOptions options) {
  options.model = model_folder(options.model, HubFiles::kConfiguration);
  return options;
}

}  // namespace sluice::cli

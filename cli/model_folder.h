// Models as people name them: a folder, or a name of the Hugging Face hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "session/planning_inputs.h"

namespace sluice::cli {

// Files of a model's folder that a command reads; no more is fetched.
enum class HubFiles : uint8_t { kConfiguration, kTokenizer, kModel };

// The folder of a model. What exists, is s3://... or has not the form of a hub's name, ORGANISATION/NAME or
// ORGANISATION/NAME@REVISION, is returned as it is. Such a name is looked for in the hub's cache
// ($HF_HUB_CACHE, or hub/ of $HF_HOME, or ~/.cache/huggingface/hub), and where the cache has no such
// snapshot, or one without these files, Python's huggingface_hub fetches them, unless $HF_HUB_OFFLINE forbids
// that. Throws InputError, naming the cache and the way out, when neither has the model.
std::string model_folder(const std::string& name, HubFiles files = HubFiles::kModel);

// A run's configuration (config::read_config) with model.hf as the folder of that model.
config::RunConfig read_run_config(const std::filesystem::path& path, const std::vector<std::string>& settings,
                                  HubFiles files = HubFiles::kModel);

// The same with --model as a folder, of which planning reads the configuration.
session::PlanningOptions with_model_folder(session::PlanningOptions options);

}  // namespace sluice::cli

// Models as users name them: a folder, or a name on the Hugging Face hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "session/planning_inputs.h"

namespace sluice::cli {

// The files of a model's folder that a command reads; no others are fetched.
enum class HubFiles : uint8_t { kConfiguration, kTokenizer, kModel };

// The folder of a model. Existing paths, s3://... and texts without a hub name's form, ORGANISATION/NAME or
// ORGANISATION/NAME@REVISION, are returned unchanged. A hub name is looked up in the hub's cache
// ($HF_HUB_CACHE, or hub/ of $HF_HOME, or ~/.cache/huggingface/hub). If the cache lacks the snapshot or its
// files, Python's huggingface_hub fetches them, unless $HF_HUB_OFFLINE is set. InputError, naming the cache
// and the way out, if neither has the model.
std::string model_folder(const std::string& name, HubFiles files = HubFiles::kModel);

// A run's configuration (config::read_config) with model.hf replaced by model_folder().
config::RunConfig read_run_config(const std::filesystem::path& path, const std::vector<std::string>& settings,
                                  HubFiles files = HubFiles::kModel);

// The options with --model replaced by its folder, whose configuration planning reads.
session::PlanningOptions with_model_folder(session::PlanningOptions options);

}  // namespace sluice::cli

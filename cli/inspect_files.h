// Prints files for `sluice inspect`, by kind. Every function uses the same reader as the other commands, so
// its output is what they see, and throws that reader's InputErrors.
#pragma once

#include <filesystem>

#include "base/json_fwd.h"
#include "cost/calibration.h"
#include "storage/location.h"
#include "strategy/cluster.h"

namespace sluice::cli {

void inspect_corpus(const std::filesystem::path& prefix);
void inspect_tokenizer(const std::filesystem::path& path);
void inspect_safetensors(const std::filesystem::path& path);
void inspect_config(const std::filesystem::path& path);
void inspect_metrics(const std::filesystem::path& path);
void inspect_events(const std::filesystem::path& path);
void inspect_log(const std::filesystem::path& path);

// Directories.
void inspect_checkpoint(const storage::Location& directory);
void inspect_hugging_face(const std::filesystem::path& folder);
void inspect_run(const std::filesystem::path& directory);
// A checkpoint in a bucket, or several.
void inspect_bucket(const storage::Location& location);

// Named things: a shipped calibration, and a cluster preset with the source of each rate.
void inspect_calibration(const cost::Calibration& calibration, const std::string& name);
void inspect_cluster(const strategy::Cluster& cluster);

// Parsed JSON of each schema; errors use `name`.
void inspect_lengths(const base::Json& json, const std::string& name);
void inspect_calibration(const base::Json& json, const std::string& name);
void inspect_strategies(const base::Json& json, const std::string& name);
void inspect_plan(const base::Json& json, const std::string& name);
void inspect_simulation(const base::Json& json, const std::string& name);
void inspect_trace(const base::Json& json, const std::string& name);
void inspect_model_config(const base::Json& json, const std::string& name);
void inspect_weight_map(const base::Json& json, const std::string& name);

}  // namespace sluice::cli

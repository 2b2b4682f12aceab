// sluice inspect: prints any file that Sluice reads or writes. It detects the kind of a path.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/renames.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "checkpoint/save.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/inspect_files.h"
#include "cost/shipped.h"

namespace sluice::cli {

namespace fs = std::filesystem;
using base::text;

namespace {

constexpr const char* kKnown =
    "corpora (.idx, .bin or prefix), tokenizers (.model, tokenizer.json), lengths.json, calibration.json, "
    "strategies.json, plan.json, simulation.json, traces, config.toml, metrics.jsonl, TensorBoard events, "
    ".log, .safetensors, checkpoints (corpora and checkpoints also s3://BUCKET/NAME), Hugging Face folders "
    "and run "
    "directories; by their names: shipped calibrations (a800-7b) and cluster presets (h100x8)";

[[noreturn]] void refuse(const fs::path& path, const std::string& found) {
  throw base::InputError(text(path.string(), " ", found, ": inspect knows ", kKnown));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A JSON file is recognised by its schema, or by keys that only one kind has.
void inspect_json(const fs::path& path) {
  using Inspect = void (*)(const base::Json&, const std::string&);
  constexpr struct {
    const char* schema;
    Inspect inspect;
  } kSchemas[] = {{"sluice.lengths/1", &inspect_lengths},
                  {"sluice.calibration/1", &inspect_calibration},
                  {"sluice.strategies/1", &inspect_strategies},
                  {"sluice.plan/2", &inspect_plan},
                  {"sluice.simulation/1", &inspect_simulation}};
  constexpr struct {
    const char* key;
    Inspect inspect;
  } kKeys[] = {{"traceEvents", &inspect_trace},
               {"weight_map", &inspect_weight_map},
               {"architectures", &inspect_model_config},
               {"model_type", &inspect_model_config}};
  const base::Json json = base::read_json(path);
  const std::string name = path.string();
  if (!json.is_object()) refuse(path, "is a JSON file of an unknown kind");
  if (json.contains("schema") && json["schema"].is_string()) {
    std::string schema = json["schema"];
    if (const base::Rename* row = base::renamed("schema", schema)) schema = row->name;
    for (const auto& known : kSchemas) {
      if (schema == known.schema) return known.inspect(json, name);
    }
    if (schema.starts_with("sluice.checkpoint/")) return inspect_checkpoint(path.parent_path());
    if (schema.starts_with("sluice.optimizer/"))
      return inspect_hugging_face(fs::absolute(path).parent_path().parent_path());
    refuse(path, text("has the unknown schema '", schema, "'"));
  }
  for (const auto& known : kKeys) {
    if (json.contains(known.key)) return known.inspect(json, name);
  }
  if (json.contains("model") && json.contains("added_tokens")) return inspect_tokenizer(path);
  refuse(path, "is a JSON file of an unknown kind");
}

void inspect_directory(const fs::path& path) {
  if (is_there(path / "manifest.json")) return inspect_checkpoint(path);
  if (is_there(path / "config.json")) return inspect_hugging_face(path);
  if (is_there(path / "config.toml") || !checkpoint::saved_steps(path).empty()) return inspect_run(path);
  if (is_there(path / "corpus.idx")) return inspect_corpus(path / "corpus");
  refuse(path, "is a directory of an unknown kind");
}

void inspect(const fs::path& path) {
  using Inspect = void (*)(const fs::path&);
  constexpr struct {
    const char* extension;
    Inspect inspect;
  } kExtensions[] = {{".idx", &inspect_corpus},      {".bin", &inspect_corpus},
                     {".model", &inspect_tokenizer}, {".safetensors", &inspect_safetensors},
                     {".toml", &inspect_config},     {".jsonl", &inspect_metrics},
                     {".json", &inspect_json},       {".log", &inspect_log}};
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return inspect_directory(path);
  if (!is_there(path) && is_there(path.string() + ".idx")) return inspect_corpus(path);
  const std::string name = path.string();
  if (!is_there(path) && std::ranges::count(cost::shipped_names(), name) > 0)
    return inspect_calibration(cost::shipped(name), name);
  if (!is_there(path) && std::ranges::count(strategy::cluster_preset_names(), name) > 0)
    return inspect_cluster(strategy::cluster_preset(name, 1));
  if (!is_there(path)) throw base::InputError(text(path.string(), " does not exist: name what is there"));
  if (path.filename().string().starts_with("events.out.tfevents")) return inspect_events(path);
  for (const auto& known : kExtensions) {
    if (path.extension() == known.extension) return known.inspect(path);
  }
  refuse(path, "is of an unknown kind");
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Print any file or directory that Sluice reads or writes, for people");
  auto paths = std::make_shared<std::vector<fs::path>>();
  command->add_option("paths", *paths, text("Any of: ", kKnown))->required();
  add_python_option(*command);
  command->callback([paths] {
    for (const fs::path& path : *paths) {
      if (storage::is_s3(path.string())) {
        inspect_bucket(locate(path.string()));
      } else {
        inspect(path);
      }
    }
  });
}

}  // namespace sluice::cli

#include "cli/inspect_files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/renamed_json.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/load.h"
#include "checkpoint/optimizer_folder.h"
#include "checkpoint/save.h"
#include "cli/environment.h"
#include "cli/print.h"
#include "cli/tokenizers.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "corpus/indexed.h"
#include "corpus/length_chart.h"
#include "corpus/lengths.h"
#include "corpus/load_tokenizer.h"
#include "corpus/tokenizer.h"
#include "cost/calibration.h"
#include "cost/memory_cost.h"
#include "model/family_table.h"
#include "model/hugging_face.h"
#include "model/parameter_count.h"
#include "model/summary.h"
#include "model/wrapped.h"
#include "report/metric_ranges.h"
#include "report/plan_table.h"
#include "report/strategies_table.h"
#include "strategy/readable.h"

namespace sluice::cli {

namespace fs = std::filesystem;
using base::human_bytes;
using base::human_count;
using base::Json;
using base::text;

namespace {

constexpr int64_t kShownDocuments = 3;
constexpr int64_t kShownTokens = 48;

std::string quoted(const std::string& value) { return base::json_text(value); }

void print_tensor(const checkpoint::TensorInfo& tensor) {
  print("  %-52s %-5s %-18s %s\n", tensor.name.c_str(), tensor.format_type.c_str(),
        checkpoint::shape_text(tensor.shape).c_str(),
        human_bytes(static_cast<double>(tensor.end_byte - tensor.begin_byte)).c_str());
}

void print_layer_times(const cost::CostModel::Options& options) {
  print("%4s %10s %12s %12s %12s   one layer, forward and backward, of one sequence\n", "tp", "tokens",
        "forward", "input grad.", "weight grad.");
  const model::Program program(options.model);
  for (const auto& [tp, kinds] : options.kinds_by_tp) {
    for (size_t kind = 1; kind + 1 < kinds.size(); ++kind) {
      const cost::OperationTimes& layer = kinds[kind].times;
      const int64_t window = program.kinds()[kind]->work().window;
      for (const int64_t length : {int64_t{512}, int64_t{2048}, int64_t{8192}}) {
        const auto duration = [&](const cost::Quadratic& times) {
          const cost::Quadratic own = window > 0 ? times.through_window() : times;
          return base::human_duration(own.of_sequences({&length, 1}, window));
        };
        print("%4d %10lld %12s %12s %12s%s\n", tp, static_cast<long long>(length),
              duration(layer.forward).c_str(), duration(layer.backward_input).c_str(),
              duration(layer.backward_weight).c_str(),
              window > 0 ? base::text("   window ", window).c_str() : "");
      }
    }
  }
}

void print_scheme_times(const cost::CostModel::Options& options) {
  constexpr int kShownGpus = 64;
  const cost::CostModel cost(options);
  print("%9s %12s %12s %12s %9s %9s   a stage, forward and backward, of one sequence\n", "scheme",
        "512 tokens", "4096 tokens", "32768 tokens", "util_len", "max_len");
  for (const auto& [degrees, row] : options.scheme_times) {
    const strategy::Scheme scheme{.tp = degrees.first, .pp = degrees.second};
    const auto duration = [&times = row.stage](int64_t length) {
      return base::human_duration(times.of_sequences({&length, 1}));
    };
    print("%9s %12s %12s %12s %9lld %9lld%s\n", readable(scheme).c_str(), duration(512).c_str(),
          duration(4096).c_str(), duration(32768).c_str(), static_cast<long long>(row.util_len_tokens),
          static_cast<long long>(cost::MemoryCost(cost, scheme).max_len_tokens(kShownGpus)),
          row.derived ? "  derived from other rows" : "");
  }
  print("max_len is that of %d GPUs, which share the optimiser's states\n", kShownGpus);
}

}  // namespace

void inspect_corpus(const fs::path& path) {
  const fs::path prefix = corpus::corpus_prefix(path);
  const corpus::IndexedCorpus corpus(prefix, corpus_places());
  const char* type = corpus.token_type() == corpus::TokenType::kUint16 ? "uint16" : "int32";
  std::cout << text(prefix.string(), ": corpus, ", human_count(corpus.documents()), " documents, ",
                    human_count(corpus.tokens()), " tokens as ", type, corpus.has_mask() ? ", masked" : "",
                    "\n");
  const corpus::LengthDistribution lengths(corpus.lengths());
  if (!lengths.empty()) std::cout << corpus::lengths_table({{prefix.string(), lengths}});
  const auto tokenizer = tokenizer_beside(prefix);
  for (int64_t document = 0; document < std::min(corpus.documents(), kShownDocuments); ++document) {
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(corpus.length(document), kShownTokens)));
    corpus.read(document, 0, static_cast<int64_t>(tokens.size()), tokens.data());
    std::vector<std::string> ids;
    for (const int32_t token : tokens) ids.push_back(text(token));
    const std::string content = tokenizer ? quoted(tokenizer->decode(tokens)) : base::join(ids, " ");
    std::cout << text("document ", document, ", ", corpus.length(document), " tokens: ", content,
                      corpus.length(document) > kShownTokens ? " …" : "", "\n");
  }
}

void inspect_tokenizer(const fs::path& path) {
  const auto tokenizer = open_tokenizer(path);
  std::vector<std::vector<int32_t>> ids;
  const int64_t vocabulary = tokenizer->vocabulary();
  for (int64_t i = 0; i < 8; ++i) ids.push_back({static_cast<int32_t>(vocabulary * i / 8)});
  std::cout << text(path.string(), ": tokenizer of ", human_count(vocabulary), " ids",
                    around_documents(tokenizer->begin_id(), tokenizer->end_id()), "; for example");
  const std::vector<std::string> pieces = tokenizer->decode_all(ids);
  for (size_t i = 0; i < ids.size(); ++i) std::cout << text(" ", ids[i][0], "=", quoted(pieces[i]));
  std::cout << "\n";
}

void inspect_safetensors(const fs::path& path) {
  const checkpoint::SafetensorsFile file(path);
  std::cout << text(path.string(), ": ", file.tensors().size(), " tensors, ",
                    human_bytes(static_cast<double>(file.size_bytes())), "\n");
  constexpr size_t kShownValue = 200;
  for (const auto& [key, value] : file.metadata()) {
    std::cout << text("  ", key, " = ", value.substr(0, kShownValue), value.size() > kShownValue ? " …" : "",
                      "\n");
  }
  std::fflush(stdout);
  for (const checkpoint::TensorInfo& tensor : file.tensors()) print_tensor(tensor);
}

void inspect_config(const fs::path& path) {
  std::cout << text("# ", path.string(), " with every default filled in\n",
                    config::to_toml(config::read_config(path)));
}

void inspect_metrics(const fs::path& path) {
  constexpr size_t kShownSteps = 40;
  std::vector<Json> lines;
  for (const std::string& line : base::split(base::read_file(path), '\n')) {
    if (line.empty()) continue;
    lines.push_back(base::parse_json(line, text(path.string(), ":", lines.size() + 1)));
  }
  const size_t every = 1 + lines.size() / kShownSteps;
  print("%s: %zu lines%s\n", path.c_str(), lines.size(),
        every > 1 ? text(", every ", every, "th shown, and evaluations").c_str() : "");
  print("%8s %9s %9s %9s %9s %10s  %s\n", "step", "loss", "grad_norm", "ms", "predicted", "tokens/s",
        "strategy");
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto number = [&](const char* key) {
      return base::get_or<double>(lines[i], key, 0, path.string());
    };
    // The number of steps done, counted as in the log.
    const int64_t step = base::require_in(lines[i], "step", report::kMetricCounts, path.string()) + 1;
    if (lines[i].contains("validation_loss")) {
      const auto set = base::get_or<std::string>(lines[i], "set", "", path.string());
      print("%8lld %9.4f  validation%s, %.0f targets\n", static_cast<long long>(step),
            number("validation_loss"), set.empty() ? "" : (" of " + set).c_str(), number("targets"));
    } else if (i % every == 0 || i + 1 == lines.size()) {
      print("%8lld %9.4f %9.4f %9.1f %9.1f %10.0f  %s\n", static_cast<long long>(step), number("loss"),
            number("grad_norm"), number("time_ms"), number("predicted_ms"), number("tokens_per_s"),
            strategy::readable_text(base::get_or<std::string>(lines[i], "strategy", "", path.string()))
                .c_str());
    }
  }
}

// TFRecord framing: 8 bytes length, 4 checksum, the record, 4 checksum.
void inspect_events(const fs::path& path) {
  const std::string bytes = base::read_file(path);
  int64_t records = 0;
  size_t at = 0;
  while (at + 16 <= bytes.size()) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    if (length > bytes.size() - at - 16) break;
    at += 16 + static_cast<size_t>(length);
    ++records;
  }
  std::cout << text(path.string(), ": TensorBoard events, ", records, " records",
                    at == bytes.size() ? "" : ", the last one cut off", "; tensorboard --logdir ",
                    path.parent_path().empty() ? "." : path.parent_path().string(),
                    " shows what metrics.jsonl holds too\n");
}

void inspect_log(const fs::path& path) {
  constexpr size_t kShownLines = 20;
  std::vector<std::string> lines = base::split(base::trim(base::read_file(path)), '\n');
  std::cout << text(path.string(), ": ", lines.size(), " lines; the last:\n");
  for (size_t i = lines.size() - std::min(lines.size(), kShownLines); i < lines.size(); ++i)
    std::cout << lines[i] << "\n";
}

namespace {

void print_file(const std::string& name, const checkpoint::FileRecord& file, const char* verb) {
  int64_t elements = 0;
  for (const base::Interval& interval : file.intervals) elements += interval.size();
  std::cout << text("  ", name, ": ", human_bytes(static_cast<double>(file.bytes)), ", ", verb, " ",
                    human_count(elements), " parameters\n");
}

void print_saved_steps(const storage::Location& root) {
  for (const checkpoint::SavedStep& saved : checkpoint::saved_steps(root)) {
    std::cout << text("  checkpoint after ", saved.step, " steps: ", saved.directory.string(), "\n");
  }
}

}  // namespace

void inspect_checkpoint(const storage::Location& directory) {
  checkpoint::Checkpoint checkpoint(directory);
  const checkpoint::Manifest& manifest = checkpoint.manifest();
  std::cout << text(directory.string(), ": checkpoint after ", manifest.step, " steps, saved by ",
                    manifest.world_size, " ranks, ", checkpoint::config_name(manifest.type), "\n  ",
                    model::summary(manifest.model), "\n");
  for (const checkpoint::FileRecord& file : manifest.files) print_file(file.name, file, "owns");
  for (const checkpoint::FileRecord& file : manifest.shared)
    print_file(text(checkpoint::kSharedDirectory, "/", file.name), file, "shares");
  std::cout << text("  sampler: ", manifest.sampler.is_null() ? "none" : base::json_text(manifest.sampler),
                    "\n  calibration: ",
                    manifest.calibration.is_null() ? "none"
                                                   : base::get_or<std::string>(manifest.calibration, "source",
                                                                               "unknown", directory.string()),
                    "\n  configuration: ", manifest.config.empty() ? "none" : "as trained", "\n");
  checkpoint.verify();
  std::cout << "  all files are whole: sizes and checksums agree\n";
}

namespace {

// "model.visual" of "model.visual.blocks.0.norm1.weight", "mtp" of "mtp.fc.weight".
std::string part_of(const std::string& tensor) {
  const size_t first = tensor.find('.');
  const bool inside = tensor.starts_with("model.");
  return tensor.substr(0, inside ? tensor.find('.', first + 1) : first);
}

// Prints a folder's tensors beside its language model: "333 tensors of model.visual, 850 MB".
void print_carried(const checkpoint::HuggingFaceModel& model) {
  std::map<std::string, std::pair<int64_t, int64_t>> parts;  // tensors and bytes
  for (const checkpoint::TensorFolder::Carried& carried : model.weights().carried()) {
    auto& [count, bytes] = parts[part_of(carried.tensor->name)];
    ++count;
    bytes += carried.tensor->bytes();
  }
  for (const auto& [part, size] : parts) {
    std::cout << text("  carried as it is: ", human_count(size.first, "tensor", "tensors"), " of ", part,
                      ", ", human_bytes(static_cast<double>(size.second)), "\n");
  }
  std::vector<std::string> left_out;
  const auto files = std::ssize(checkpoint::read_companions(model.folder(), &left_out));
  std::cout << text("  ", human_count(files, "file goes", "files go"), " with the model\n");
  for (const std::string& name : left_out)
    std::cout << text("  not read and not in exports: ", name, ", the weights in another format\n");
}

void print_opened(const checkpoint::HuggingFaceModel& model) {
  const Json config = base::read_python_json(model.folder() / "config.json");
  if (const model::Wrapper* const wrapper = model::wrapper_of(config)) {
    std::cout << text("  opened: the language model of a ", wrapper->model_type,
                      " model, whose tensors are in ", model.weights().names().trunk, "*\n");
  }
  if (model.weights().quantised())
    std::cout << "  matrices are quantised: they are widened when they are read\n";
}

}  // namespace

void inspect_hugging_face(const fs::path& folder) {
  const fs::path config = folder / "config.json";
  const bool weights = checkpoint::has_hugging_face_weights(folder);
  const bool counted =
      weights && fs::exists(config) &&
      model::model_to_plan_from_hugging_face(base::read_python_json(config), config.string()).counted();
  if (!weights || counted) return inspect_model_config(base::read_python_json(config), config.string());
  const checkpoint::HuggingFaceModel model(folder);
  std::cout << text(folder.string(), ": Hugging Face folder, ", checkpoint::config_name(model.type()), "\n  ",
                    model::summary(model.model()), "\n  ", model::abilities_text(model.model()), "\n");
  print_opened(model);
  print_carried(model);
  if (!checkpoint::has_optimizer(folder)) return;
  const checkpoint::OptimizerFolder optimizer(model);
  std::cout << text("  optimiser state after ", human_count(optimizer.run().step, "step", "steps"),
                    "; it belongs to these weights\n");
}

void inspect_run(const fs::path& directory) {
  const fs::path root = fs::exists(directory / "checkpoints") ? directory / "checkpoints" : directory;
  std::cout << text(directory.string(), ": run directory\n");
  print_saved_steps(root);
  if (fs::exists(directory / "metrics.jsonl")) inspect_metrics(directory / "metrics.jsonl");
}

void inspect_bucket(const storage::Location& location) {
  if ((location / "manifest.json").is_file()) return inspect_checkpoint(location);
  if (const auto prefix = corpus::corpus_at(location.string(), corpus_places()))
    return inspect_corpus(*prefix);
  if (checkpoint::saved_steps(location).empty()) {
    throw base::InputError(text(
        location.string(), " holds no checkpoint and no corpus: name a corpus, step-N or what holds such"));
  }
  std::cout << text(location.string(), ": checkpoints\n");
  print_saved_steps(location);
}

void inspect_lengths(const Json& json, const std::string& name) {
  const corpus::NamedLengths named{name, corpus::lengths_from_json(json, name)};
  std::cout << corpus::lengths_table({named});
  if (!named.lengths.empty()) std::cout << "\n" << corpus::lengths_histogram(named);
}

void inspect_calibration(const Json& json, const std::string& name) {
  inspect_calibration(cost::calibration_from_json(json, name), name);
}

void inspect_calibration(const cost::Calibration& calibration, const std::string& name) {
  const cost::CostModel::Options& options = calibration.options;
  std::cout << text(name, ": calibration, ", calibration.hardware, "; ", calibration.source, "\n  ",
                    model::summary(options.model), "\n");
  if (options.scheme_times.empty()) {
    print_layer_times(options);
  } else {
    print_scheme_times(options);
  }
  const auto link = [](const cost::LinkTimes& times) {
    return text(base::human_duration(times.latency_ns), " + ",
                human_bytes(static_cast<double>(times.bytes_per_s)), "/s");
  };
  print("links: inside a node %s, between nodes %s; memory of a rank %s\n", link(options.intra).c_str(),
        link(options.inter).c_str(), human_bytes(static_cast<double>(options.memory.device_bytes)).c_str());
}

void inspect_strategies(const Json& json, const std::string& name) {
  std::cout << text(name, ": ", report::strategies_table(json, name));
}

void inspect_plan(const Json& json, const std::string& name) {
  constexpr int kMostRanks = 1 << 20;
  const strategy::StepPlan plan = strategy::step_plan_from_json(json, kMostRanks, name);
  std::cout << text(name, ": plan ", base::get_or<std::string>(json, "hash", "without hash", name), "\n",
                    report::plan_table(plan), "\n");
}

void inspect_simulation(const Json& json, const std::string& name) {
  std::vector<std::vector<std::string>> rows = {
      {"system", "mean step", "as measured", "tokens/s", "peak", "configuration"}};
  const auto duration = [](int64_t ns) { return ns > 0 ? base::human_duration(ns) : "-"; };
  auto systems = base::require<Json>(json, "systems", name);
  base::take_new_names(systems, "sluice.simulation/1");
  for (const auto& [system, of] : systems.items()) {
    const auto title = base::get_or<std::string>(of, "title", system, name);
    const auto configuration = base::get_or<std::string>(of, "configuration", "", name);
    if (of.contains("infeasible")) {
      const auto why = base::require<std::string>(of, "infeasible", name);
      rows.push_back({title, "-", "-", "-", "-", text("cannot run this: ", why)});
      continue;
    }
    rows.push_back({title, duration(base::require<int64_t>(of, "mean_step_ns", name)),
                    duration(base::get_or<int64_t>(of, "mean_step_ns_measured_gathers", 0, name)),
                    base::human_count(base::get_or<int64_t>(of, "tokens_per_s", 0, name)),
                    human_bytes(static_cast<double>(base::get_or<int64_t>(of, "peak_bytes", 0, name))),
                    strategy::readable_text(configuration)});
  }
  std::cout << text(name, ": simulation of ",
                    human_count(base::get_or<int64_t>(json, "ranks", 0, name), "rank", "ranks"), " of ",
                    base::get_or<std::string>(json, "hardware", "unknown devices", name), "\n",
                    base::table_text(rows, "lrrrrl"));
}

// By process (rank): the time of each category of work.
void inspect_trace(const Json& json, const std::string& name) {
  std::map<std::pair<int64_t, std::string>, std::pair<int64_t, double>> totals;
  double end_us = 0;
  for (const Json& event : base::require<Json>(json, "traceEvents", name)) {
    if (base::get_or<std::string>(event, "ph", "", name) != "X") continue;
    const auto duration_us = base::get_or<double>(event, "dur", 0, name);
    auto& [count, sum_us] = totals[{base::get_or<int64_t>(event, "pid", 0, name),
                                    base::get_or<std::string>(event, "cat", "", name)}];
    ++count;
    sum_us += duration_us;
    end_us = std::max(end_us, base::get_or<double>(event, "ts", 0, name) + duration_us);
  }
  print("%s: timeline of %s; chrome://tracing or ui.perfetto.dev draws it\n", name.c_str(),
        base::human_duration(static_cast<int64_t>(end_us * 1e3)).c_str());
  print("%6s %-16s %7s %12s\n", "rank", "work", "nodes", "time");
  for (const auto& [key, total] : totals) {
    print("%6lld %-16s %7lld %12s\n", static_cast<long long>(key.first), key.second.c_str(),
          static_cast<long long>(total.first),
          base::human_duration(static_cast<int64_t>(total.second * 1e3)).c_str());
  }
}

void inspect_model_config(const Json& json, const std::string& name) {
  const model::Model model = model::model_to_plan_from_hugging_face(json, name);
  std::cout << text(name, ": ", model::summary(model), "\n  ", model::abilities_text(model), "\n");
  if (!model.counted()) return;
  try {
    model::model_from_hugging_face(json, name);
  } catch (const base::InputError& error) {
    std::cout << text("  does not train: ", error.what(), "\n");
  }
}

void inspect_weight_map(const Json& json, const std::string& name) {
  const Json weight_map = base::require<Json>(json, "weight_map", name);
  std::map<std::string, int64_t> tensors;
  for (const auto& [tensor, file] : weight_map.items())
    ++tensors[file.is_string() ? file.get<std::string>() : base::json_text(file)];
  std::cout << text(name, ": index of ", tensors.size(), " safetensors files\n");
  for (const auto& [file, count] : tensors) std::cout << text("  ", file, ": ", count, " tensors\n");
}

}  // namespace sluice::cli

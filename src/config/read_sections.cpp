#include "config/read_sections.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "model/shape_ranges.h"
#include "model/shape_sizes.h"

namespace sluice::config {

namespace {

using base::InputError;
using base::text;

// Ranges that are none of the modules'. Counts and tokens stay where sums of many are inside 64 bits.
constexpr base::Range<int64_t> kSteps{0, int64_t{1} << 40};
constexpr base::Range<int64_t> kSeeds{0, std::numeric_limits<int64_t>::max()};
constexpr base::Range<int> kRanks{1, 1 << 20};
constexpr base::Range<double> kGib{0, 1e6};
constexpr base::Range<double> kWeights{1e-9, 1e9};
constexpr base::Range<double> kRates{0, 1e3};

void read_rope(TomlSection& section, model::Rope& rope) {
  const model::ShapeRanges& ranges = model::kShapeRanges;
  section.read_in("rope_theta", rope.theta, ranges.rope_theta);
  std::string scaling = "none";
  section.read_choice("rope_scaling", scaling, {"none", "linear", "llama3", "yarn"});
  rope.scaling = scaling == "linear"   ? model::RopeScaling::kLinear
                 : scaling == "llama3" ? model::RopeScaling::kLlama3
                 : scaling == "yarn"   ? model::RopeScaling::kYarn
                                       : model::RopeScaling::kNone;
  section.read_in("rope_factor", rope.factor, ranges.rope_factor);
  section.read_in("rope_low_freq_factor", rope.low_freq_factor, ranges.rope_factor);
  section.read_in("rope_high_freq_factor", rope.high_freq_factor, ranges.rope_factor);
  section.read_in("rope_original_max_position_embeddings", rope.original_max_position_embeddings,
                  ranges.max_positions);
}

model::Shape read_shape(TomlSection& section) {
  const model::ShapeRanges& ranges = model::kShapeRanges;
  model::Shape shape;
  for (const model::ShapeSize& size : model::shape_sizes()) {
    shape.*size.value = size.otherwise(shape);
    section.read_in(size.name, shape.*size.value, size.range);
  }
  section.read("tie_embeddings", shape.tie_embeddings);
  section.read_in("norm_eps", shape.norm_eps, ranges.norm_eps);
  read_rope(section, shape.rope);
  return shape;
}

ModelConfig read_model(TomlSection& section, const std::string& file) {
  ModelConfig model;
  section.read("hf", model.hf);
  const bool has_shape = section.has("layers");
  const model::Shape shape = read_shape(section);
  if (section.has("seed")) section.read_in("seed", model.seed.emplace(), kSeeds);
  section.finish();
  if (!model.hf.empty() && has_shape) section.wrong("hf", "and a shape are both given: keep one");
  if (model.hf.empty() && !has_shape)
    section.wrong("layers", "is missing: give a shape, or a folder as model.hf");
  if (!has_shape) return model;
  try {
    model::validate(shape);
  } catch (const InputError& error) {
    throw InputError(text("[config] ", file, ": ", error.what()));
  }
  model.shape = shape;
  return model;
}

void read_train_corpora(TomlSection& section, DataConfig& data) {
  const toml::node* node = section.node("train");
  if (node == nullptr) return;
  const toml::array* pairs = node->as_array();
  if (pairs == nullptr) section.refuse("train", "a list of [prefix, weight] pairs");
  data.train.clear();
  for (const toml::node& item : *pairs) {
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number()) {
      section.refuse("train", "a list of nothing but [prefix, weight] pairs");
    }
    const double weight = *(*pair)[1].value<double>();
    if (!kWeights.holds(weight)) section.refuse("train", text("as weights ", base::expectation(kWeights)));
    data.train.emplace_back(*(*pair)[0].value_exact<std::string>(), weight);
  }
}

// A text or a list of texts, which is one set, or a table of sets by name.
std::vector<ValidationSet> read_validation(TomlSection& section) {
  const toml::node* node = section.node("validation");
  const toml::table* named = node == nullptr ? nullptr : node->as_table();
  if (named == nullptr) {
    std::vector<std::string> prefixes = section.read_texts("validation");
    if (prefixes.empty()) return {};
    return {{"", std::move(prefixes)}};
  }
  std::vector<ValidationSet> sets;
  TomlSection inner(named, "data.validation", section.file());
  for (const auto& [key, unused] : *named) {
    const std::string name(key.str());
    sets.push_back({name, inner.read_texts(name)});
    if (name.empty() || sets.back().prefixes.empty()) section.refuse("validation", "corpora for each name");
  }
  return sets;
}

// What a phase may change.
void read_training_data(TomlSection& section, DataConfig& data) {
  read_train_corpora(section, data);
  section.read_in("context_length", data.context_length, {2, (int64_t{1} << 31) - 1});
  std::string overflow = corpus::name(data.overflow);
  section.read_choice("overflow", overflow, {"truncate", "split", "drop"});
  data.overflow = corpus::parse_overflow(overflow, "data.overflow");
  section.read_in("tokens_per_step", data.tokens_per_step, {2, kSteps.most});
  section.read_in("seed", data.seed, kSeeds);
}

DataConfig read_data(TomlSection& section) {
  DataConfig data;
  read_training_data(section, data);
  data.validation = read_validation(section);
  section.read_in("validation_fraction", data.validation_fraction, {0.0, 0.9});
  section.finish();
  return data;
}

std::vector<PhaseConfig> read_phases(const toml::table& root, const DataConfig& data,
                                     const std::string& file) {
  std::vector<PhaseConfig> phases;
  const toml::array* tables = root["phase"].as_array();
  if (tables == nullptr) return phases;
  for (const toml::node& node : *tables) {
    TomlSection section(node.as_table(), "phase", file);
    PhaseConfig phase{.data = phases.empty() ? data : phases.back().data};
    const DataConfig before = phase.data;
    if (!section.has("step")) section.wrong("step", "is missing: say with which step the phase begins");
    section.read_in("step", phase.step, {phases.empty() ? 1 : phases.back().step + 1, kSteps.most});
    read_training_data(section, phase.data);
    section.finish();
    // Documents would come again in the order in which they just came.
    if (!section.has("seed") && !goes_on(before, phase.data)) ++phase.data.seed;
    phases.push_back(std::move(phase));
  }
  return phases;
}

TrainConfig read_train(TomlSection& section) {
  TrainConfig train;
  section.read_in("steps", train.steps, {1, kSteps.most});
  section.read_in("eval_every", train.eval_every, kSteps);
  section.read_in("threads", train.threads, {0, 4096});
  section.read_in("join_timeout_s", train.join_timeout_s, {1, 86'400});
  section.read_in("stall_s", train.stall_s, {0, 86'400});
  section.read_choice("dtype", train.dtype, {"float32", "bfloat16", "float64"});
  section.read_choice("reduce_dtype", train.reduce_dtype, {"float32", "bfloat16"});
  if (train.dtype == "float64" && train.reduce_dtype == "bfloat16") {
    section.wrong(
        "reduce_dtype",
        "is bfloat16, but with dtype = \"float64\" everything is float64: leave it out, or compute in "
        "float32");
  }
  section.read_choice("device", train.device, {"auto", "cpu", "cuda"});
  section.read("deterministic", train.deterministic);
  train.freeze = section.read_texts("freeze");
  section.finish();
  return train;
}

LoraConfig read_lora(TomlSection& section) {
  LoraConfig lora;
  section.read_in("rank", lora.rank, {0, 1 << 16});
  section.read_in("alpha", lora.alpha, {1e-6, 1e6});
  if (section.has("targets")) lora.targets = section.read_texts("targets");
  section.finish();
  return lora;
}

std::vector<GroupConfig> read_groups(TomlSection& section) {
  std::vector<GroupConfig> groups;
  const toml::node* node = section.node("groups");
  if (node == nullptr) return groups;
  const toml::array* tables = node->as_array();
  const bool whole = tables != nullptr && (tables->empty() || tables->is_homogeneous(toml::node_type::table));
  if (!whole) section.refuse("groups", "tables, written [[optimizer.groups]]");
  for (const toml::node& table : *tables) {
    TomlSection of_group(table.as_table(), "optimizer.groups", section.file());
    GroupConfig group{.parameters = of_group.read_texts("parameters")};
    if (group.parameters.empty()) {
      of_group.wrong("parameters", "is missing: give patterns of names, as \"model.embed_tokens.*\"");
    }
    if (!of_group.has("lr")) of_group.wrong("lr", "is missing: give the group's learning rate");
    of_group.read_in("lr", group.lr, kRates);
    if (of_group.has("weight_decay")) of_group.read_in("weight_decay", group.weight_decay.emplace(), kRates);
    of_group.finish();
    groups.push_back(std::move(group));
  }
  return groups;
}

OptimizerConfig read_optimizer(TomlSection& section) {
  OptimizerConfig optimizer;
  section.read_in("lr", optimizer.lr, kRates);
  if (const toml::node* node = section.node("betas")) {
    const toml::array* betas = node->as_array();
    if (betas == nullptr || betas->size() != 2) section.refuse("betas", "a list of two numbers");
    for (size_t i = 0; i < 2; ++i) {
      const auto beta = (*betas)[i].value<double>();
      if (!beta || !(*beta >= 0 && *beta < 1)) section.refuse("betas", "two numbers from 0 to below 1");
      optimizer.betas[i] = *beta;
    }
  }
  section.read_in("eps", optimizer.eps, {0, 1});
  section.read_in("weight_decay", optimizer.weight_decay, kRates);
  section.read_in("clip", optimizer.clip, {0, 1e30});
  section.read_in("warmup_steps", optimizer.warmup_steps, kSteps);
  section.read_choice("decay", optimizer.decay, {"cosine", "linear", "constant", "wsd", "inverse_sqrt"});
  section.read_in("decay_steps", optimizer.decay_steps, kSteps);
  section.read_in("min_lr", optimizer.min_lr, kRates);
  optimizer.groups = read_groups(section);
  section.finish();
  return optimizer;
}

ParallelConfig read_parallel(TomlSection& section) {
  ParallelConfig parallel;
  parallel.strategies = section.read_texts("strategies");
  if (parallel.strategies == std::vector<std::string>{"auto"}) parallel.strategies.clear();
  section.read("proposed", parallel.proposed);
  if (const toml::node* node = section.node("select")) {
    if (const auto index = node->value_exact<int64_t>()) {
      parallel.select = std::to_string(*index);
    } else if (const auto word = node->value_exact<std::string>()) {
      parallel.select = *word;
    }
    const bool named = parallel.select == "best" || parallel.select == "cycle";
    if (!named && base::parse_integer(parallel.select).value_or(-1) < 0) {
      section.refuse("select", "best, cycle or an index from 0");
    }
  }
  section.read_choice("method", parallel.method, {"ours", "paper"});
  section.read_choice("exchange", parallel.exchange, {"auto", "ring", "heads", "nested", "cycle"});
  section.read_choice("stages", parallel.stages, {"time", "layers"});
  section.read_in("max_cp", parallel.max_cp, base::Range<int>{0, 1 << 20});
  section.read("share", parallel.share);
  section.read("calibration", parallel.calibration);
  section.read_in("gpus_per_node", parallel.gpus_per_node, kRanks);
  section.finish();
  return parallel;
}

MemoryConfig read_memory(TomlSection& section) {
  MemoryConfig memory;
  section.read_in("device_gib", memory.device_gib, kGib);
  section.read_in("margin_gib", memory.margin_gib, kGib);
  section.read_in("host_gib", memory.host_gib, kGib);
  section.read_choice("recompute", memory.recompute, {"auto", "none", "full"});
  if (const toml::node* node = section.node("offload")) {
    if (const auto fraction = node->value<double>(); fraction && *fraction >= 0 && *fraction <= 1) {
      memory.offload = text(*fraction);
    } else if (node->value_exact<std::string>() != "auto") {
      section.refuse("offload", "auto or a fraction from 0.0 to 1.0");
    }
  }
  section.finish();
  return memory;
}

CheckpointConfig read_checkpoint(TomlSection& section) {
  CheckpointConfig checkpoint;
  section.read_in("every", checkpoint.every, kSteps);
  section.read("async", checkpoint.async);
  section.read_in("keep", checkpoint.keep, {1, 1 << 20});
  section.read_in("keep_hours", checkpoint.keep_hours, {0, 1 << 20});
  section.read("mirror", checkpoint.mirror);
  section.finish();
  return checkpoint;
}

ElasticConfig read_elastic(TomlSection& section) {
  ElasticConfig elastic;
  section.read("enabled", elastic.enabled);
  if (const toml::node* node = section.node("buddy_every");
      node && node->value_exact<std::string>() != "auto") {
    constexpr base::Range<int64_t> kEvery{1, kSteps.most};
    const auto steps = node->value_exact<int64_t>();
    if (!steps || !kEvery.holds(*steps))
      section.refuse("buddy_every", text("auto or ", base::expectation(kEvery)));
    elastic.buddy_every = *steps;
  }
  section.finish();
  return elastic;
}

LogConfig read_log(TomlSection& section) {
  LogConfig log;
  std::string directory = log.dir.string();
  section.read("dir", directory);
  log.dir = directory;
  section.read("tensorboard", log.tensorboard);
  if (const toml::node* node = section.node("trace_steps")) {
    const toml::array* steps = node->as_array();
    if (steps == nullptr) section.refuse("trace_steps", "a list of steps");
    for (const toml::node& step : *steps) {
      const auto value = step.value_exact<int64_t>();
      if (!value || !kSteps.holds(*value))
        section.refuse("trace_steps", text("a list of steps, each ", base::expectation(kSteps)));
      log.trace_steps.push_back(*value);
    }
  }
  section.finish();
  return log;
}

const std::vector<std::string>& section_names() {
  static const std::vector<std::string> names{"model",      "data",     "train",   "optimizer",
                                              "lora",       "parallel", "cluster", "memory",
                                              "checkpoint", "elastic",  "log",     "phase"};
  return names;
}

void refuse_unknown_sections(const toml::table& root, const std::string& name) {
  for (const auto& [key, value] : root) {
    const std::string found(key.str());
    const bool known = std::ranges::find(section_names(), found) != section_names().end();
    const toml::array* list = value.as_array();
    const bool tables = list != nullptr && list->is_homogeneous(toml::node_type::table);
    if (known && (found == "phase" ? tables : value.is_table())) continue;
    if (found == "phase") {
      throw InputError(
          text("[config] ", place_of(name, value), ": phases are written [[phase]], with two brackets"));
    }
    const std::string nearest = base::nearest_word(found, section_names());
    throw InputError(text("[config] ", place_of(name, value), ": unknown section '", found, "'",
                          nearest.empty() ? text(": known are ", base::join(section_names(), ", "))
                                          : text(": did you mean '", nearest, "'?")));
  }
}

}  // namespace

RunConfig read_sections(const toml::table& root, const std::string& name) {
  refuse_unknown_sections(root, name);
  const auto section = [&](const char* key) { return TomlSection(root, key, name); };
  RunConfig config;
  TomlSection model = section("model"), data = section("data"), train = section("train"),
              optimizer = section("optimizer"), lora = section("lora"), parallel = section("parallel"),
              cluster = section("cluster"), memory = section("memory"), checkpoint = section("checkpoint"),
              elastic = section("elastic"), log = section("log");
  config.model = read_model(model, name);
  config.data = read_data(data);
  config.phases = read_phases(root, config.data, name);
  config.train = read_train(train);
  config.optimizer = read_optimizer(optimizer);
  config.lora = read_lora(lora);
  config.parallel = read_parallel(parallel);
  cluster.read("preset", config.cluster.preset);
  cluster.read_in("nodes", config.cluster.nodes, kRanks);
  cluster.finish();
  config.memory = read_memory(memory);
  config.checkpoint = read_checkpoint(checkpoint);
  config.elastic = read_elastic(elastic);
  config.log = read_log(log);
  return config;
}

}  // namespace sluice::config

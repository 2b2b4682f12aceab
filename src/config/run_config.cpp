#include "config/run_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/hugging_face.h"

namespace sluice::config {

namespace {

using base::InputError;
using base::text;

// Where a value stands; those of --set have no line.
std::string place(const std::string& file, const toml::node& value) {
  const auto line = value.source().begin.line;
  return line == 0 ? "--set" : text(file, ":", line);
}

// One section of the file while it is read: knows every key asked for, so that unknown ones are found.
class Section {
 public:
  Section(const toml::table& root, std::string name, std::string file)
      : table_(root[name].as_table()), name_(std::move(name)), file_(std::move(file)) {}

  bool has(const std::string& key) const { return table_ != nullptr && table_->contains(key); }

  template <typename T>
  void read(const std::string& key, T& value) {
    known_.push_back(key);
    if (!has(key)) return;
    const toml::node& node = *table_->get(key);
    const auto found = node.value_exact<Stored<T>>();
    if (found) {
      value = static_cast<T>(*found);
      return;
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (const auto whole = node.value_exact<int64_t>()) {
        value = static_cast<T>(*whole);
        return;
      }
    }
    wrong(key, text("is not ", type_name<T>()));
  }

  template <typename T>
  void read_in(const std::string& key, T& value, T low, T high) {
    read(key, value);
    if (!(value >= low && value <= high)) wrong(key, text("is ", value, ": allowed are ", low, " to ", high));
  }

  void read_choice(const std::string& key, std::string& value, const std::vector<std::string>& choices) {
    read(key, value);
    if (std::ranges::find(choices, value) == choices.end()) {
      wrong(key, text("is '", value, "': allowed are ", base::join(choices, ", ")));
    }
  }

  const toml::node* node(const std::string& key) {
    known_.push_back(key);
    return has(key) ? table_->get(key) : nullptr;
  }

  [[noreturn]] void wrong(const std::string& key, const std::string& fault) const {
    throw InputError(text("[config] ", file_, ": ", name_, ".", key, " ", fault));
  }

  // Refuses keys that nobody asked for.
  void finish() const {
    if (table_ == nullptr) return;
    for (const auto& [key, value] : *table_) {
      const std::string found(key.str());
      if (std::ranges::find(known_, found) != known_.end()) continue;
      const std::string nearest = base::nearest_word(found, known_);
      const std::string hint = nearest.empty() ? text("known keys: ", base::join(known_, ", "))
                                               : text("did you mean '", nearest, "'?");
      throw InputError(
          text("[config] ", place(file_, value), ": unknown key '", name_, ".", found, "': ", hint));
    }
  }

 private:
  template <typename T>
  using Stored = std::conditional_t<
      std::is_same_v<T, bool>, bool,
      std::conditional_t<std::is_integral_v<T>, int64_t,
                         std::conditional_t<std::is_floating_point_v<T>, double, std::string>>>;

  template <typename T>
  static const char* type_name() {
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (std::is_integral_v<T>) return "a whole number";
    if constexpr (std::is_floating_point_v<T>) return "a number";
    return "a text";
  }

  const toml::table* table_;
  std::string name_;
  std::string file_;
  std::vector<std::string> known_;
};

std::vector<std::string> read_texts(Section& section, const std::string& key) {
  const toml::node* node = section.node(key);
  std::vector<std::string> texts;
  if (node == nullptr) return texts;
  if (const auto single = node->value_exact<std::string>()) return {*single};
  const toml::array* array = node->as_array();
  if (array == nullptr) section.wrong(key, "is not a text or a list of texts");
  for (const toml::node& item : *array) {
    const auto value = item.value_exact<std::string>();
    if (!value) section.wrong(key, "holds something other than texts");
    texts.push_back(*value);
  }
  return texts;
}

constexpr int64_t kMaxInt = int64_t{1} << 40;

void read_rope(Section& section, model::Rope& rope) {
  section.read("rope_theta", rope.theta);
  std::string scaling = "none";
  section.read_choice("rope_scaling", scaling, {"none", "linear", "llama3", "yarn"});
  rope.scaling = scaling == "linear"   ? model::RopeScaling::kLinear
                 : scaling == "llama3" ? model::RopeScaling::kLlama3
                 : scaling == "yarn"   ? model::RopeScaling::kYarn
                                       : model::RopeScaling::kNone;
  section.read("rope_factor", rope.factor);
  section.read("rope_low_freq_factor", rope.low_freq_factor);
  section.read("rope_high_freq_factor", rope.high_freq_factor);
  section.read("rope_original_max_position_embeddings", rope.original_max_position_embeddings);
}

ModelConfig read_model(Section& section) {
  ModelConfig model;
  section.read("hf", model.hf);
  model::Shape shape;
  const bool has_shape = section.has("layers");
  section.read_in<int64_t>("layers", shape.layers, 0, kMaxInt);
  section.read_in<int64_t>("hidden", shape.hidden, 0, kMaxInt);
  section.read_in<int64_t>("heads", shape.heads, 0, kMaxInt);
  shape.kv_heads = shape.heads;
  section.read_in<int64_t>("kv_heads", shape.kv_heads, 0, kMaxInt);
  shape.head_dim = shape.heads > 0 ? shape.hidden / shape.heads : 0;
  section.read_in<int64_t>("head_dim", shape.head_dim, 0, kMaxInt);
  section.read_in<int64_t>("ffn_hidden", shape.ffn_hidden, 0, kMaxInt);
  section.read_in<int64_t>("vocab", shape.vocab, 0, kMaxInt);
  section.read("tie_embeddings", shape.tie_embeddings);
  section.read("norm_eps", shape.norm_eps);
  read_rope(section, shape.rope);
  section.finish();
  if (!model.hf.empty() && has_shape) section.wrong("hf", "and a shape are both given: keep one");
  if (model.hf.empty() && !has_shape)
    section.wrong("layers", "is missing: give a shape, or a folder as model.hf");
  if (has_shape) {
    model::validate(shape);
    model.shape = shape;
  }
  return model;
}

void read_train_corpora(Section& section, DataConfig& data) {
  const toml::node* node = section.node("train");
  if (node == nullptr) return;
  const toml::array* pairs = node->as_array();
  if (pairs == nullptr) section.wrong("train", "is not a list of [prefix, weight] pairs");
  for (const toml::node& item : *pairs) {
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number()) {
      section.wrong("train", "holds something other than [prefix, weight] pairs");
    }
    const double weight = *(*pair)[1].value<double>();
    if (!(weight > 0)) section.wrong("train", text("has weight ", weight, ": weights must be above 0"));
    data.train.emplace_back(*(*pair)[0].value_exact<std::string>(), weight);
  }
}

DataConfig read_data(Section& section) {
  DataConfig data;
  read_train_corpora(section, data);
  data.validation = read_texts(section, "validation");
  section.read_in("validation_fraction", data.validation_fraction, 0.0, 0.9);
  section.read_in<int64_t>("context_length", data.context_length, 2, int64_t{1} << 31);
  std::string overflow = corpus::name(data.overflow);
  section.read_choice("overflow", overflow, {"truncate", "split", "drop"});
  data.overflow = corpus::parse_overflow(overflow, "data.overflow");
  section.read_in<int64_t>("tokens_per_step", data.tokens_per_step, 2, kMaxInt);
  section.read("seed", data.seed);
  section.finish();
  return data;
}

TrainConfig read_train(Section& section) {
  TrainConfig train;
  section.read_in<int64_t>("steps", train.steps, 1, kMaxInt);
  section.read_in<int64_t>("eval_every", train.eval_every, 0, kMaxInt);
  section.read_in("threads", train.threads, 0, 4096);
  section.read_in<int64_t>("join_timeout_s", train.join_timeout_s, 1, 86'400);
  section.read_in<int64_t>("stall_s", train.stall_s, 0, 86'400);
  section.read_choice("dtype", train.dtype, {"float32", "bfloat16", "float64"});
  section.read_choice("device", train.device, {"auto", "cpu", "cuda"});
  section.finish();
  return train;
}

OptimizerConfig read_optimizer(Section& section) {
  OptimizerConfig optimizer;
  section.read_in("lr", optimizer.lr, 0.0, 1e3);
  if (const toml::node* node = section.node("betas")) {
    const toml::array* betas = node->as_array();
    if (betas == nullptr || betas->size() != 2) section.wrong("betas", "is not a list of two numbers");
    for (size_t i = 0; i < 2; ++i) {
      const auto beta = (*betas)[i].value<double>();
      if (!beta || !(*beta >= 0 && *beta < 1)) section.wrong("betas", "must lie in [0, 1)");
      optimizer.betas[i] = *beta;
    }
  }
  section.read_in("eps", optimizer.eps, 0.0, 1.0);
  section.read_in("weight_decay", optimizer.weight_decay, 0.0, 1e3);
  section.read_in("clip", optimizer.clip, 0.0, 1e30);
  section.read_in<int64_t>("warmup_steps", optimizer.warmup_steps, 0, kMaxInt);
  section.read_choice("decay", optimizer.decay, {"cosine", "linear", "constant"});
  section.read_in("min_lr", optimizer.min_lr, 0.0, 1e3);
  section.finish();
  return optimizer;
}

ParallelConfig read_parallel(Section& section) {
  ParallelConfig parallel;
  parallel.strategies = read_texts(section, "strategies");
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
      section.wrong("select",
                    text("is '", parallel.select, "': allowed are best, cycle and an index from 0"));
    }
  }
  section.read_choice("method", parallel.method, {"ours", "paper"});
  section.read_in("max_cp", parallel.max_cp, 1, 1 << 20);
  section.read("calibration", parallel.calibration);
  section.read_in("gpus_per_node", parallel.gpus_per_node, 1, 1 << 20);
  section.finish();
  return parallel;
}

MemoryConfig read_memory(Section& section) {
  MemoryConfig memory;
  section.read_in("device_gib", memory.device_gib, 0.0, 1e6);
  section.read_in("margin_gib", memory.margin_gib, 0.0, 1e6);
  section.read_in("host_gib", memory.host_gib, 0.0, 1e6);
  section.read_choice("recompute", memory.recompute, {"auto", "none", "full"});
  if (const toml::node* node = section.node("offload")) {
    if (const auto fraction = node->value<double>(); fraction && *fraction >= 0 && *fraction <= 1) {
      memory.offload = text(*fraction);
    } else if (node->value_exact<std::string>() != "auto") {
      section.wrong("offload", "must be auto or a fraction from 0.0 to 1.0");
    }
  }
  section.finish();
  return memory;
}

LogConfig read_log(Section& section) {
  LogConfig log;
  std::string directory = log.dir.string();
  section.read("dir", directory);
  log.dir = directory;
  section.read("tensorboard", log.tensorboard);
  if (const toml::node* node = section.node("trace_steps")) {
    const toml::array* steps = node->as_array();
    if (steps == nullptr) section.wrong("trace_steps", "is not a list of steps");
    for (const toml::node& step : *steps) {
      const auto value = step.value_exact<int64_t>();
      if (!value || *value < 0) section.wrong("trace_steps", "holds something other than steps from 0");
      log.trace_steps.push_back(*value);
    }
  }
  section.finish();
  return log;
}

const std::vector<std::string>& section_names() {
  static const std::vector<std::string> names{"model",   "data",   "train",      "optimizer", "parallel",
                                              "cluster", "memory", "checkpoint", "log"};
  return names;
}

void refuse_unknown_sections(const toml::table& root, const std::string& name) {
  for (const auto& [key, value] : root) {
    const std::string found(key.str());
    if (std::ranges::find(section_names(), found) != section_names().end() && value.is_table()) continue;
    const std::string nearest = base::nearest_word(found, section_names());
    throw InputError(text("[config] ", place(name, value), ": unknown section '", found, "'",
                          nearest.empty() ? text(": known are ", base::join(section_names(), ", "))
                                          : text(": did you mean '", nearest, "'?")));
  }
}

RunConfig from_table(const toml::table& root, const std::string& name) {
  refuse_unknown_sections(root, name);
  const auto section = [&](const char* key) { return Section(root, key, name); };
  RunConfig config;
  Section model = section("model"), data = section("data"), train = section("train"),
          optimizer = section("optimizer"), parallel = section("parallel"), cluster = section("cluster"),
          memory = section("memory"), checkpoint = section("checkpoint"), log = section("log");
  config.model = read_model(model);
  config.data = read_data(data);
  config.train = read_train(train);
  config.optimizer = read_optimizer(optimizer);
  config.parallel = read_parallel(parallel);
  cluster.read("preset", config.cluster.preset);
  cluster.read_in("nodes", config.cluster.nodes, 1, 1 << 20);
  cluster.finish();
  config.memory = read_memory(memory);
  checkpoint.read_in<int64_t>("every", config.checkpoint.every, 0, kMaxInt);
  checkpoint.read_in("keep", config.checkpoint.keep, 1, 1 << 20);
  checkpoint.finish();
  config.log = read_log(log);
  return config;
}

toml::table parse_toml(const std::string& bytes, const std::string& name) {
  try {
    return toml::parse(bytes, name);
  } catch (const toml::parse_error& error) {
    throw InputError(text("[config] ", name, ":", error.source().begin.line, ": ", error.description()));
  }
}

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
    parsed = toml::parse("value = " + value);
  } catch (const toml::parse_error&) {
    parsed.insert_or_assign("value", value);
  }
  if (!root.contains(section)) root.insert(section, toml::table{});
  toml::table* table = root[section].as_table();
  if (table == nullptr)
    throw InputError(text("[config] --set ", setting, ": '", section, "' is not a section"));
  table->insert_or_assign(key, *parsed.get("value"));
}

}  // namespace

RunConfig parse_config(const std::string& toml_text, const std::string& name,
                       const std::vector<std::string>& overrides) {
  toml::table root = parse_toml(toml_text, name);
  for (const std::string& setting : overrides) apply_override(root, setting);
  return from_table(root, name);
}

RunConfig read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return parse_config(base::read_file(path), path.string(), overrides);
}

void resolve_model(RunConfig& config) {
  if (config.model.hf.empty()) return;
  const std::filesystem::path path = std::filesystem::path(config.model.hf) / "config.json";
  config.model.shape = model::shape_from_hugging_face(base::read_json(path), path.string());
}

namespace {

toml::array texts_to_array(const std::vector<std::string>& texts) {
  toml::array array;
  for (const std::string& item : texts) array.push_back(item);
  return array;
}

const char* name_of(model::RopeScaling scaling) {
  switch (scaling) {
    case model::RopeScaling::kNone: return "none";
    case model::RopeScaling::kLinear: return "linear";
    case model::RopeScaling::kLlama3: return "llama3";
    case model::RopeScaling::kYarn: return "yarn";
  }
  return "none";
}

toml::table model_table(const ModelConfig& model) {
  if (!model.hf.empty()) return toml::table{{"hf", model.hf}};
  const model::Shape& shape = *model.shape;
  return toml::table{{"layers", shape.layers},
                     {"hidden", shape.hidden},
                     {"heads", shape.heads},
                     {"kv_heads", shape.kv_heads},
                     {"head_dim", shape.head_dim},
                     {"ffn_hidden", shape.ffn_hidden},
                     {"vocab", shape.vocab},
                     {"tie_embeddings", shape.tie_embeddings},
                     {"norm_eps", shape.norm_eps},
                     {"rope_theta", shape.rope.theta},
                     {"rope_scaling", name_of(shape.rope.scaling)},
                     {"rope_factor", shape.rope.factor},
                     {"rope_low_freq_factor", shape.rope.low_freq_factor},
                     {"rope_high_freq_factor", shape.rope.high_freq_factor},
                     {"rope_original_max_position_embeddings", shape.rope.original_max_position_embeddings}};
}

toml::table data_table(const DataConfig& data) {
  toml::array train;
  for (const auto& [prefix, weight] : data.train) train.push_back(toml::array{prefix, weight});
  return toml::table{{"train", train},
                     {"validation", texts_to_array(data.validation)},
                     {"validation_fraction", data.validation_fraction},
                     {"context_length", data.context_length},
                     {"overflow", corpus::name(data.overflow)},
                     {"tokens_per_step", data.tokens_per_step},
                     {"seed", data.seed}};
}

toml::table optimizer_table(const OptimizerConfig& optimizer) {
  return toml::table{
      {"lr", optimizer.lr},       {"betas", toml::array{optimizer.betas[0], optimizer.betas[1]}},
      {"eps", optimizer.eps},     {"weight_decay", optimizer.weight_decay},
      {"clip", optimizer.clip},   {"warmup_steps", optimizer.warmup_steps},
      {"decay", optimizer.decay}, {"min_lr", optimizer.min_lr}};
}

toml::table parallel_table(const ParallelConfig& parallel) {
  toml::table table{{"proposed", parallel.proposed},
                    {"method", parallel.method},
                    {"max_cp", parallel.max_cp},
                    {"calibration", parallel.calibration},
                    {"gpus_per_node", parallel.gpus_per_node}};
  if (parallel.strategies.empty()) {
    table.insert("strategies", "auto");
  } else {
    table.insert("strategies", texts_to_array(parallel.strategies));
  }
  if (const auto index = base::parse_integer(parallel.select)) {
    table.insert("select", *index);
  } else {
    table.insert("select", parallel.select);
  }
  return table;
}

toml::table memory_table(const MemoryConfig& memory) {
  toml::table table{{"device_gib", memory.device_gib},
                    {"margin_gib", memory.margin_gib},
                    {"host_gib", memory.host_gib},
                    {"recompute", memory.recompute}};
  if (const auto fraction = base::parse_number(memory.offload)) {
    table.insert("offload", *fraction);
  } else {
    table.insert("offload", memory.offload);
  }
  return table;
}

}  // namespace

std::string to_toml(const RunConfig& config) {
  toml::array trace_steps;
  for (const int64_t step : config.log.trace_steps) trace_steps.push_back(step);
  const std::vector<std::pair<const char*, toml::table>> sections{
      {"model", model_table(config.model)},
      {"data", data_table(config.data)},
      {"train", toml::table{{"steps", config.train.steps},
                            {"eval_every", config.train.eval_every},
                            {"threads", config.train.threads},
                            {"join_timeout_s", config.train.join_timeout_s},
                            {"stall_s", config.train.stall_s},
                            {"dtype", config.train.dtype},
                            {"device", config.train.device}}},
      {"optimizer", optimizer_table(config.optimizer)},
      {"parallel", parallel_table(config.parallel)},
      {"cluster", toml::table{{"preset", config.cluster.preset}, {"nodes", config.cluster.nodes}}},
      {"memory", memory_table(config.memory)},
      {"checkpoint", toml::table{{"every", config.checkpoint.every}, {"keep", config.checkpoint.keep}}},
      {"log", toml::table{{"dir", config.log.dir.string()},
                          {"tensorboard", config.log.tensorboard},
                          {"trace_steps", trace_steps}}}};
  std::ostringstream out;
  for (const auto& [name, table] : sections) out << "[" << name << "]\n" << table << "\n\n";
  return out.str();
}

}  // namespace sluice::config

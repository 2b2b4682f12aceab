// A run's configuration as the TOML that read_sections reads.
#include <sstream>
#include <utility>

#include "config/run_config.h"
#include "config/toml_section.h"
#include "model/shape_sizes.h"

namespace sluice::config {

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
    case model::RopeScaling::kLongRope: return "longrope";
  }
  return "none";
}

toml::table shape_table(const model::Shape& shape) {
  toml::table table{{"tie_embeddings", shape.tie_embeddings},
                    {"norm_eps", shape.norm_eps},
                    {"rope_theta", shape.rope.theta},
                    {"rope_scaling", name_of(shape.rope.scaling)},
                    {"rope_factor", shape.rope.factor},
                    {"rope_low_freq_factor", shape.rope.low_freq_factor},
                    {"rope_high_freq_factor", shape.rope.high_freq_factor},
                    {"rope_original_max_position_embeddings", shape.rope.original_max_position_embeddings}};
  for (const model::ShapeSize& size : model::shape_sizes()) table.insert(size.name, shape.*size.value);
  return table;
}

toml::table model_table(const ModelConfig& model) {
  toml::table table = model.hf.empty() ? shape_table(*model.shape) : toml::table{{"hf", model.hf}};
  if (model.seed) table.insert("seed", *model.seed);
  return table;
}

toml::table training_data_table(const DataConfig& data) {
  toml::array train;
  for (const auto& [prefix, weight] : data.train) train.push_back(toml::array{prefix, weight});
  return toml::table{{"train", train},
                     {"context_length", data.context_length},
                     {"overflow", corpus::name(data.overflow)},
                     {"tokens_per_step", data.tokens_per_step},
                     {"seed", data.seed}};
}

toml::table data_table(const DataConfig& data) {
  toml::table table = training_data_table(data);
  table.insert("validation_fraction", data.validation_fraction);
  const bool named = !data.validation.empty() && !data.validation.front().name.empty();
  if (named) {
    toml::table sets;
    for (const ValidationSet& set : data.validation) sets.insert(set.name, texts_to_array(set.prefixes));
    sets.is_inline(true);
    table.insert("validation", std::move(sets));
  } else {
    table.insert("validation",
                 data.validation.empty() ? toml::array{} : texts_to_array(data.validation.front().prefixes));
  }
  return table;
}

toml::table phase_table(const PhaseConfig& phase) {
  toml::table table = training_data_table(phase.data);
  table.insert("step", phase.step);
  return table;
}

toml::array groups_to_array(const std::vector<GroupConfig>& groups) {
  toml::array array;
  for (const GroupConfig& group : groups) {
    toml::table table{{"parameters", texts_to_array(group.parameters)}, {"lr", group.lr}};
    if (group.weight_decay) table.insert("weight_decay", *group.weight_decay);
    table.is_inline(true);
    array.push_back(std::move(table));
  }
  return array;
}

toml::table optimizer_table(const OptimizerConfig& optimizer) {
  return toml::table{
      {"lr", optimizer.lr},         {"betas", toml::array{optimizer.betas[0], optimizer.betas[1]}},
      {"eps", optimizer.eps},       {"weight_decay", optimizer.weight_decay},
      {"clip", optimizer.clip},     {"warmup_steps", optimizer.warmup_steps},
      {"decay", optimizer.decay},   {"decay_steps", optimizer.decay_steps},
      {"min_lr", optimizer.min_lr}, {"groups", groups_to_array(optimizer.groups)}};
}

toml::table parallel_table(const ParallelConfig& parallel) {
  toml::table table{{"proposed", parallel.proposed},       {"method", parallel.method},
                    {"exchange", parallel.exchange},       {"stages", parallel.stages},
                    {"max_cp", parallel.max_cp},           {"share", parallel.share},
                    {"calibration", parallel.calibration}, {"gpus_per_node", parallel.gpus_per_node}};
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

toml::table elastic_table(const ElasticConfig& elastic) {
  toml::table table{{"enabled", elastic.enabled}};
  if (elastic.buddy_every > 0) {
    table.insert("buddy_every", elastic.buddy_every);
  } else {
    table.insert("buddy_every", "auto");
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
                            {"reduce_dtype", config.train.reduce_dtype},
                            {"device", config.train.device},
                            {"deterministic", config.train.deterministic},
                            {"freeze", texts_to_array(config.train.freeze)}}},
      {"optimizer", optimizer_table(config.optimizer)},
      {"lora", toml::table{{"rank", config.lora.rank},
                           {"alpha", config.lora.alpha},
                           {"targets", texts_to_array(config.lora.targets)}}},
      {"parallel", parallel_table(config.parallel)},
      {"cluster", toml::table{{"preset", config.cluster.preset}, {"nodes", config.cluster.nodes}}},
      {"memory", memory_table(config.memory)},
      {"checkpoint", toml::table{{"every", config.checkpoint.every},
                                 {"async", config.checkpoint.async},
                                 {"keep", config.checkpoint.keep},
                                 {"keep_hours", config.checkpoint.keep_hours},
                                 {"mirror", config.checkpoint.mirror}}},
      {"elastic", elastic_table(config.elastic)},
      {"log", toml::table{{"dir", config.log.dir.string()},
                          {"tensorboard", config.log.tensorboard},
                          {"trace_steps", trace_steps}}}};
  std::ostringstream out;
  for (const auto& [name, table] : sections) out << "[" << name << "]\n" << table << "\n\n";
  for (const PhaseConfig& phase : config.phases) out << "[[phase]]\n" << phase_table(phase) << "\n\n";
  return out.str();
}

}  // namespace sluice::config

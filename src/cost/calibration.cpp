#include "cost/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/renamed_json.h"
#include "base/text.h"
#include "cost/derived_rows.h"
#include "cost/memory_cost.h"
#include "cost/table_figures.h"
#include "model/config_json.h"
#include "model/differences.h"
#include "model/hugging_face.h"
#include "model/program.h"
#include "model/tuning.h"

namespace sluice::cost {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kSchema = "sluice.calibration/1";

// Far above any machine, and small enough that their sums and products stay inside 64 bits.
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostBytesPerToken = int64_t{1} << 40;
constexpr int64_t kMostBytesPerElement = 64;
constexpr int64_t kMostParameters = int64_t{1} << 48;
constexpr int64_t kMostPaddedTokens = int64_t{1} << 31;
// No device has a link of 10 TB/s: NVLink 5 moves 0.9 TB/s in one direction, a GPU's own memory 8 TB/s.
constexpr int64_t kMostBytesPerSecond = 10'000'000'000'000;
constexpr int64_t kMostPriceNs = int64_t{1} << 44;  // five hours
constexpr int kMostDegree = 1024;
constexpr int kMostRanks = 1 << 20;

double to_ns(int64_t fixed) { return std::ldexp(static_cast<double>(fixed), -Quadratic::kFractionBits); }

Json to_json(const Quadratic& times) {
  Json json = {{"a", to_ns(times.a)}, {"b", to_ns(times.b)}, {"c", times.c_ns}};
  if (times.a_windowed > 0) json["a_windowed"] = to_ns(times.a_windowed);
  return json;
}

Json to_json(const LinkTimes& link) {
  return {{"latency_ns", link.latency_ns}, {"bytes_per_s", link.bytes_per_s}};
}

// Omits the key if the cost is not known.
void put_decode(Json& row, const std::string& key, const DecodeCost& cost) {
  if (cost.by_rows.empty()) return;
  Json rows = Json::array();
  for (const auto& [count, ns] : cost.by_rows) rows.push_back({count, ns});
  row[key] = {{"rows", rows}, {"key", to_ns(cost.key)}, {"pair", to_ns(cost.pair)}, {"state", cost.state_ns}};
}

// Reads members of one object; errors name the file and the path of the key.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw InputError(text(where_, " is ", base::excerpt(json), ": give an object"));
  }

  Reader object(const std::string& key) const { return {member(key), text(where_, ": ", key)}; }

  double real(const std::string& key, double limit) const {
    const auto value = base::require<double>(json_, key, where_);
    if (!std::isfinite(value) || value < 0 || value >= limit) {
      base::refuse(member(key), key, text("a number from 0 to below ", limit), where_);
    }
    return value;
  }

  int64_t integer(const std::string& key, int64_t least, int64_t most) const {
    return base::require_in<int64_t>(json_, key, {least, most}, where_);
  }

  bool has(const std::string& key) const { return json_.contains(key); }

  // Empty if the key is absent.
  DecodeCost decode(const std::string& key) const {
    if (!has(key)) return {};
    const Reader reader = object(key);
    DecodeCost cost{.key = Quadratic::from_ns(reader.real("key", 0x1p20), 0, 0).a,
                    .pair = Quadratic::from_ns(reader.real("pair", 0x1p20), 0, 0).a,
                    .state_ns = reader.integer("state", 0, kMostPriceNs)};
    const Json& rows = reader.member("rows");
    if (!rows.is_array() || rows.empty())
      base::refuse(rows, "rows", "pairs of rows and nanoseconds", reader.where_);
    for (const Json& row : rows) {
      const int64_t least = cost.by_rows.empty() ? 1 : cost.by_rows.back().rows + 1;
      const bool pair = row.is_array() && row.size() == 2;
      const auto number = [&](size_t at, int64_t from) {
        const int64_t value = pair && base::holds_integer<int64_t>(row[at]) ? row[at].get<int64_t>() : -1;
        if (value < from || value > kMostPriceNs)
          base::refuse(row, "rows", "ascending rows, each with its nanoseconds", reader.where_);
        return value;
      };
      cost.by_rows.push_back({.rows = number(0, least), .ns = number(1, 0)});
    }
    return cost;
  }

  // a, b and c of this object.
  Quadratic times() const {
    return Quadratic::from_ns(real("a", 0x1p20), real("b", 0x1p31), real("c", 0x1p50));
  }

  // A quadratic whose a and b are not both zero, unless `vanishing` is kAllowed.
  enum class Vanishing { kRefused, kAllowed };
  Quadratic quadratic(const std::string& key, Vanishing vanishing) const {
    const Quadratic times = object(key).times();
    if (vanishing == Vanishing::kRefused && times.a == 0 && times.b == 0) {
      base::refuse(member(key), key, "times that grow with the length: a or b above 0", where_);
    }
    return times;
  }

  int64_t bandwidth(const std::string& key) const {
    const Json& value = member(key);
    if (base::holds_integer<int64_t>(value) && value.get<int64_t>() > kMostBytesPerSecond) {
      base::refuse(
          value, key,
          text("at most ", kMostBytesPerSecond, ", which no link exceeds; measure again (sluice profile)"),
          where_);
    }
    return integer(key, 1, kMostBytesPerSecond);
  }

  LinkTimes link(const std::string& key) const {
    const Reader inner = object(key);
    return {.latency_ns = inner.integer("latency_ns", 0, kMostPriceNs),
            .bytes_per_s = inner.bandwidth("bytes_per_s")};
  }

 private:
  const Json& member(const std::string& key) const {
    const Json* found = base::find(json_, key);
    if (found == nullptr) base::refuse_without(key, "one, or measure again (sluice profile)", where_);
    return *found;
  }

  const Json& json_;
  std::string where_;
};

constexpr double kTableForwardShare = 1.0 / 3;

// Bytes a token on the stage that holds most.
int64_t saved_bytes_of_stage(const CostModel& cost, const strategy::Scheme& scheme) {
  if (!cost.options().scheme_times.empty()) {
    return cost.options().scheme_times.at({scheme.tp, scheme.pp}).saved_bytes_per_token;
  }
  int64_t fullest = 0;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const base::Interval blocks = cost.program().blocks_in(cost.stage_run(scheme, stage));
    int64_t bytes = 0;
    for (int64_t at = blocks.begin; at < blocks.end; ++at)
      bytes += MemoryCost(cost, scheme).saved_bytes_per_token(at);
    fullest = std::max(fullest, bytes);
  }
  return fullest;
}

// The published form of a scheme's slowest stage.
Json scheme_row(const CostModel& cost, const strategy::Scheme& scheme, int world_size) {
  const int stage = cost.slowest_stage(scheme);
  const Quadratic times = cost.stage_times(scheme, stage);
  const Quadratic forward = cost.cell_times(scheme, CellKind::kForward, cost.stage_run(scheme, stage));
  Json row = {{"scheme", to_text(scheme)}};
  row.update(to_json(times));
  row.update({{"forward_share", times.b == 0 ? 0.0 : to_ns(forward.b) / to_ns(times.b)},
              {"bytes_per_token", saved_bytes_of_stage(cost, scheme)},
              {"bytes_fixed", MemoryCost(cost, scheme).fixed_bytes(world_size)},
              {"max_len", MemoryCost(cost, scheme).max_len_tokens(world_size)},
              {"util_len", util_len_tokens(cost, scheme)}});
  if (is_derived(cost, scheme)) row["derived"] = true;
  return row;
}

// A row for each TP degree and kind of block; the first of a degree has the ends too.
Json layers_to_json(const CostModel::Options& options) {
  Json layers = Json::array();
  for (const auto& [tp, kinds] : options.kinds_by_tp) {
    for (size_t kind = 1; kind + 1 < kinds.size(); ++kind) {
      const KindCost& block = kinds[kind];
      Json row = {{"tp", tp},
                  {"forward", to_json(block.times.forward)},
                  {"backward_input", to_json(block.times.backward_input)},
                  {"backward_weight", to_json(block.times.backward_weight)},
                  {"saved_bytes_per_token", block.saved_bytes_per_token},
                  {"deferred_bytes_per_token", block.deferred_bytes_per_token}};
      put_decode(row, "decode", block.decode);
      for (const auto& [format, times] : block.low_precision) {
        row["low_precision"][std::string(name_of(format))] = {
            {"forward", to_json(times.forward)},
            {"backward_input", to_json(times.backward_input)},
            {"backward_weight", to_json(times.backward_weight)}};
      }
      if (kind == 1) {
        const OperationTimes& embedding = kinds.front().times;
        row.update({{"embedding_forward", to_json(embedding.forward)},
                    {"embedding_backward", to_json(embedding.backward_input)},
                    {"head", to_json(kinds.back().times.forward)}});
        put_decode(row, "embedding_decode", kinds.front().decode);
        put_decode(row, "head_decode", kinds.back().decode);
      } else {
        row["kind"] = kind;
      }
      layers.push_back(std::move(row));
    }
  }
  return layers;
}

void read_layer(const Json& json, const std::string& where, const model::Program& program,
                CostModel::Options& options) {
  const Reader reader(json, where);
  const auto tp = static_cast<int>(reader.integer("tp", 1, kMostDegree));
  const std::string fault = program.tp_fault(tp);
  if (!fault.empty()) throw InputError(text(where, ": ", fault));
  const auto count = static_cast<int64_t>(program.kinds().size());
  const int64_t kind = reader.has("kind") ? reader.integer("kind", 1, count - 2) : 1;
  std::vector<KindCost>& kinds = options.kinds_by_tp[tp];
  kinds.resize(program.kinds().size());
  KindCost& block = kinds[static_cast<size_t>(kind)];
  if (block.saved_bytes_per_token > 0) {
    const std::string which = count > 3 ? text(" and kind ", kind) : "";
    throw InputError(text(where, ": tp ", tp, which, " stands there twice: remove one"));
  }
  using enum Reader::Vanishing;
  // The weight gradient of frozen matrices may be too short to be measured.
  const model::TokenWork work = program.kinds()[static_cast<size_t>(kind)]->work();
  block.times = {reader.quadratic("forward", kRefused), reader.quadratic("backward_input", kRefused),
                 reader.quadratic("backward_weight", work.trained < work.products ? kAllowed : kRefused)};
  if (kind == 1) {
    kinds.front().times = {reader.quadratic("embedding_forward", kAllowed),
                           reader.quadratic("embedding_backward", kAllowed),
                           {}};
    kinds.back().times = {reader.quadratic("head", kRefused), {}, {}};
    kinds.front().decode = reader.decode("embedding_decode");
    kinds.back().decode = reader.decode("head_decode");
  }
  block.decode = reader.decode("decode");
  for (const base::GemmFormat format : base::kLowPrecisionFormats) {
    const std::string name(name_of(format));
    if (!reader.has("low_precision") || !reader.object("low_precision").has(name)) continue;
    const Reader times = reader.object("low_precision").object(name);
    block.low_precision[format] = {times.quadratic("forward", kRefused),
                                   times.quadratic("backward_input", kRefused),
                                   times.quadratic("backward_weight", kAllowed)};
  }
  block.saved_bytes_per_token = reader.integer("saved_bytes_per_token", 1, kMostBytesPerToken);
  block.deferred_bytes_per_token = reader.integer("deferred_bytes_per_token", 0, kMostBytesPerToken);
}

// A published row. The keys that depend on the number of ranks are for people.
void read_scheme(const Json& json, const std::string& where, CostModel::Options& options) {
  const Reader reader(json, where);
  const strategy::Scheme scheme = strategy::parse_scheme(base::require<std::string>(json, "scheme", where));
  const std::string name = text(where, ": ", to_text(scheme));
  const std::string fault = model::tp_fault(options.model, scheme.tp);
  if (!fault.empty()) throw InputError(text(name, ": ", fault));
  if (scheme.cp != 1)
    throw InputError(text(name, ": rows have one lane, and more are computed from them: leave it out"));
  const int64_t layers = model::Program(options.model).blocks().size();
  if (layers % scheme.pp != 0)
    throw InputError(text(name, ": ", scheme.pp, " stages do not divide ", layers, " layers: leave it out"));
  const double share = reader.real("forward_share", 1);
  if (std::abs(share - kTableForwardShare) > 1e-6) {
    throw InputError(text(name, ": key 'forward_share' is ", share, ": give a third"));
  }
  const SchemeTimes row{.stage = reader.times(),
                        .saved_bytes_per_token = reader.integer("bytes_per_token", 1, kMostBytesPerToken),
                        .util_len_tokens = reader.integer("util_len", 0, kMostPaddedTokens),
                        .derived = base::get_or<bool>(json, "derived", false, where)};
  if (!options.scheme_times.try_emplace({scheme.tp, scheme.pp}, row).second) {
    throw InputError(text(name, " stands there twice: remove one"));
  }
}

// a·GPUs hardly depends on the scheme: attention is cut over all of them. A row far from the others was not
// fitted well, most often because its sequences were too short to tell a from b.
void refuse_degenerate(const CostModel::Options& options, const std::string& where) {
  const auto a_gpus = [](const auto& entry) {
    return Wide{entry.second.stage.a} * entry.first.first * entry.first.second;
  };
  std::vector<Wide> sorted;
  for (const auto& entry : options.scheme_times) sorted.push_back(a_gpus(entry));
  std::ranges::sort(sorted);
  const Wide median = sorted[sorted.size() / 2];
  for (const auto& entry : options.scheme_times) {
    const Wide value = a_gpus(entry);
    if (value > 0 && value * 5 <= median * 8 && value * 8 >= median * 5) continue;
    const auto as_ns = [](Wide fixed) { return to_ns(static_cast<int64_t>(fixed)); };
    throw InputError(
        text(where, ": the row of ", to_text(strategy::Scheme{entry.first.first, entry.first.second}),
             " is degenerate: a times its GPUs is ", as_ns(value), " ns, but the table's median is ",
             as_ns(median), " ns: measure it again with longer sequences or leave it out"));
  }
}

void read_schemes(const Json& rows, const std::string& name, CostModel::Options& options) {
  if (!rows.is_array() || rows.empty()) {
    throw InputError(text(name, ": without 'layers', key 'schemes' needs rows: give one for each tp and pp"));
  }
  for (size_t i = 0; i < rows.size(); ++i) read_scheme(rows[i], text(name, ": schemes[", i, "]"), options);
  refuse_degenerate(options, text(name, ": schemes"));
}

void read_layers(const Json& layers, const std::string& name, CostModel::Options& options) {
  if (!layers.is_array() || layers.empty())
    throw InputError(text(name, ": key 'layers' has no entry: give one for each tp and kind of layer"));
  const model::Program program(options.model);
  for (size_t i = 0; i < layers.size(); ++i) {
    read_layer(layers[i], text(name, ": layers[", i, "]"), program, options);
  }
  for (const auto& [tp, kinds] : options.kinds_by_tp) {
    for (size_t kind = 1; kind + 1 < kinds.size(); ++kind) {
      if (kinds[kind].saved_bytes_per_token > 0) continue;
      throw InputError(text(name, ": layers has no row of tp ", tp, " and kind ", kind,
                            " of the model's blocks: calibrate again with this model"));
    }
  }
}

Json memory_to_json(const MemoryModel& memory) {
  Json json = {{"device_bytes", memory.device_bytes},
               {"element_bytes", memory.element_bytes},
               {"accumulator_bytes", memory.accumulator_bytes},
               {"owner_bytes_per_parameter", memory.owner_bytes_per_parameter},
               {"transient_bytes_per_token", memory.transient_bytes_per_token},
               {"logits_chunk_bytes", memory.logits_chunk_bytes}};
  if (memory.host_bytes > 0) json["host_bytes"] = memory.host_bytes;
  if (memory.master_bytes > 0) json["master_bytes"] = memory.master_bytes;
  if (memory.attention_bytes_per_token > 0) {
    json.update({{"attention_bytes", memory.attention_bytes},
                 {"attention_bytes_per_token", memory.attention_bytes_per_token}});
  }
  if (memory.layer_parameters > 0) {
    json.update({{"layer_parameters", memory.layer_parameters}, {"end_parameters", memory.end_parameters}});
  }
  return json;
}

MemoryModel memory_from_json(const Reader& reader) {
  const bool counted = reader.has("layer_parameters");
  const bool scratch = reader.has("attention_bytes_per_token");
  return {.device_bytes = reader.integer("device_bytes", 1, kMostBytes),
          .element_bytes = reader.integer("element_bytes", 1, kMostBytesPerElement),
          .accumulator_bytes = reader.integer("accumulator_bytes", 1, kMostBytesPerElement),
          .owner_bytes_per_parameter = reader.integer("owner_bytes_per_parameter", 1, kMostBytesPerElement),
          .transient_bytes_per_token = reader.integer("transient_bytes_per_token", 0, kMostBytesPerToken),
          .logits_chunk_bytes = reader.integer("logits_chunk_bytes", 0, kMostBytes),
          .attention_bytes = scratch ? reader.integer("attention_bytes", 0, kMostBytes) : 0,
          .attention_bytes_per_token =
              scratch ? reader.integer("attention_bytes_per_token", 1, kMostBytesPerToken) : 0,
          .host_bytes = reader.has("host_bytes") ? reader.integer("host_bytes", 0, kMostBytes) : 0,
          .layer_parameters = counted ? reader.integer("layer_parameters", 1, kMostParameters) : 0,
          .end_parameters = counted ? reader.integer("end_parameters", 1, kMostParameters) : 0,
          .master_bytes =
              reader.has("master_bytes") ? reader.integer("master_bytes", 1, kMostBytesPerElement) : 0};
}

// REQUIRES: options.inter is read.
void read_groups(const Json& groups, const std::string& name, std::vector<int>& group_ranks,
                 CostModel::Options& options) {
  if (!groups.is_array())
    throw InputError(text(name, ": groups is ", base::excerpt(groups), ": give a list of groups of ranks"));
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string where = text(name, ": groups[", i, "]");
    const Reader group(groups[i], where);
    const LinkTimes inside = options.beyond.empty() ? options.inter : options.beyond.back();
    const LinkTimes between = group.link("between");
    if (between.bytes_per_s > inside.bytes_per_s || between.latency_ns < inside.latency_ns)
      throw InputError(text(where, ": between is faster than what joins the ranks inside (",
                            inside.bytes_per_s, " bytes_per_s, ", inside.latency_ns,
                            " latency_ns): give what is attained between groups, or leave them out"));
    group_ranks.push_back(static_cast<int>(group.integer("ranks", 1, kMostRanks)));
    options.beyond.push_back(between);
  }
}

void read_topology(const Json& json, const std::string& name, CostModel::Options& options) {
  const Reader reader(json, name);
  const auto node_ranks = static_cast<int>(reader.integer("gpus_per_node", 1, kMostRanks));
  const auto nic_ranks =
      reader.has("gpus_per_nic") ? static_cast<int>(reader.integer("gpus_per_nic", 1, node_ranks)) : 1;
  std::vector<int> group_ranks;
  if (reader.has("groups")) read_groups(json.at("groups"), name, group_ranks, options);
  const std::string fault = strategy::topology_fault(node_ranks, group_ranks);
  if (!fault.empty()) throw InputError(text(name, ": ", fault));
  options.topology = strategy::Topology(node_ranks, nic_ranks, std::move(group_ranks));
}

}  // namespace

Json to_json(const Calibration& calibration, const std::vector<strategy::Scheme>& schemes, int world_size) {
  const CostModel::Options& options = calibration.options;
  const CostModel cost(options);
  Json rows = Json::array();
  if (options.scheme_times.empty()) {
    for (const strategy::Scheme& scheme : schemes) rows.push_back(scheme_row(cost, scheme, world_size));
  }
  for (const auto& [degrees, row] : options.scheme_times) {
    rows.push_back(scheme_row(cost, {.tp = degrees.first, .pp = degrees.second}, world_size));
  }
  Json json = {{"schema", kSchema},
               {"model", model::config_json(options.model)},
               {"hardware", calibration.hardware},
               {"source", calibration.source},
               {"schemes", rows}};
  if (options.scheme_times.empty()) json["layers"] = layers_to_json(options);
  json.update({{"links",
                {{"intra", to_json(options.intra)},
                 {"inter", to_json(options.inter)},
                 {"host", to_json(options.host)}}},
               {"memory", memory_to_json(options.memory)},
               {"update_ps_per_element", options.update_ps_per_element},
               {"code_ps_per_element", options.code_ps_per_element},
               {"gpus_per_node", options.topology.node_ranks()}});
  if (options.ring_step_ns > 0) json["ring_step_ns"] = options.ring_step_ns;
  if (options.topology.nic_ranks() > 1) json["gpus_per_nic"] = options.topology.nic_ranks();
  for (size_t i = 0; i < options.beyond.size(); ++i) {
    json["groups"].push_back(
        {{"ranks", options.topology.group_ranks()[i]}, {"between", to_json(options.beyond[i])}});
  }
  if (model::is_tuned(options.model)) json["tuning"] = model::tuning_to_json(options.model);
  return json;
}

Calibration calibration_from_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  const Reader reader(json, name);
  const Reader links = reader.object("links");
  Calibration calibration{.hardware = base::require<std::string>(json, "hardware", name),
                          .source = base::require<std::string>(json, "source", name)};
  CostModel::Options& options = calibration.options;
  options.model =
      model::model_to_plan_from_hugging_face(base::require<Json>(json, "model", name), name + ": model");
  if (json.contains("tuning"))
    options.model = model::with_tuning(options.model, json.at("tuning"), name + ": tuning");
  if (json.contains("layers")) {
    Json layers = json.at("layers");
    base::take_new_names(layers, kSchema);
    read_layers(layers, name, options);
  } else {
    read_schemes(base::require<Json>(json, "schemes", name), name, options);
    add_derived_rows(options);
  }
  options.intra = links.link("intra");
  options.inter = links.link("inter");
  if (links.has("host")) options.host = links.link("host");
  options.memory = memory_from_json(reader.object("memory"));
  options.update_ps_per_element = reader.integer("update_ps_per_element", 0, kMostPriceNs);
  if (reader.has("ring_step_ns")) options.ring_step_ns = reader.integer("ring_step_ns", 0, kMostPriceNs);
  if (reader.has("code_ps_per_element"))
    options.code_ps_per_element = reader.integer("code_ps_per_element", 0, kMostPriceNs);
  read_topology(json, name, options);
  return calibration;
}

void take_levels(const CostModel::Options& described, CostModel::Options& options) {
  options.topology = {described.topology.node_ranks(), options.topology.nic_ranks(),
                      described.topology.group_ranks()};
  options.beyond.clear();
  LinkTimes inside = options.inter;
  for (const LinkTimes& between : described.beyond) {
    inside = {std::max(inside.latency_ns, between.latency_ns),
              std::min(inside.bytes_per_s, between.bytes_per_s)};
    options.beyond.push_back(inside);
  }
}

void move_to_nodes_of(int ranks, CostModel::Options& options) {
  const std::string fault = strategy::topology_fault(ranks, options.topology.group_ranks());
  if (!fault.empty())
    throw InputError(text("the calibration's groups do not fit nodes of ", ranks, " ranks: ", fault));
  options.topology = options.topology.with_nodes_of(ranks);
}

std::string model_fault(const Calibration& calibration, const model::Model& model) {
  const model::Model& there = calibration.options.model;
  if (model::cost_alike(there, model)) return "";
  // Published times cover whole stages, so they hold for a model however it is tuned.
  const bool of_stages = !calibration.options.scheme_times.empty();
  if (model::cost_alike(model::untuned(there), model::untuned(model)))
    return of_stages ? "" : "other parameters of it are trained (train.freeze, train.mtp, lora)";
  std::vector<std::string> differing;
  for (const model::SizeDifference& size : model::size_differences(model, there))
    differing.push_back(text(size.name, " is ", size.first, ", there ", size.second));
  if (model.window() != there.window())
    differing.push_back(text("window is ", model.window(), ", there ", there.window()));
  return differing.empty() ? "its layers are others" : base::join(differing, "; ");
}

}  // namespace sluice::cost

#include "cost/calibration.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/hugging_face.h"

namespace sluice::cost {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kSchema = "sluice.calibration/1";

double to_ns(int64_t fixed) { return std::ldexp(static_cast<double>(fixed), -Quadratic::kFractionBits); }

Json to_json(const Quadratic& times) {
  return {{"a", to_ns(times.a)}, {"b", to_ns(times.b)}, {"c", times.c_ns}};
}

Json to_json(const LinkTimes& link) {
  return {{"latency_ns", link.latency_ns}, {"bytes_per_s", link.bytes_per_s}};
}

// Reads members of one object; errors name the file and the path of the key.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw InputError(text(where_, ": expected an object, not ", json.dump()));
  }

  Reader object(const std::string& key) const { return {member(key), text(where_, ": ", key)}; }

  double real(const std::string& key, double limit) const {
    const auto value = base::require<double>(json_, key, where_);
    if (!std::isfinite(value) || value < 0 || value >= limit) refuse(key, "a number in [0, ", limit, ")");
    return value;
  }

  int64_t integer(const std::string& key, int64_t least) const {
    const Json& value = member(key);
    if (!value.is_number_integer() || value.get<int64_t>() < least)
      refuse(key, "an integer of at least ", least);
    return value.get<int64_t>();
  }

  // A quadratic that is not all zero in its lengths, unless `may_vanish`.
  enum class Vanishing { kRefused, kAllowed };
  Quadratic quadratic(const std::string& key, Vanishing vanishing) const {
    const Reader inner = object(key);
    const Quadratic times =
        Quadratic::from_ns(inner.real("a", 0x1p31), inner.real("b", 0x1p31), inner.real("c", 0x1p62));
    if (vanishing == Vanishing::kRefused && times.a == 0 && times.b == 0) {
      refuse(key, "times that grow with the length: a and b are both 0");
    }
    return times;
  }

  LinkTimes link(const std::string& key) const {
    const Reader inner = object(key);
    return {.latency_ns = inner.integer("latency_ns", 0), .bytes_per_s = inner.integer("bytes_per_s", 1)};
  }

 private:
  const Json& member(const std::string& key) const {
    if (!json_.contains(key)) throw InputError(text(where_, ": key '", key, "' is missing"));
    return json_.at(key);
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const std::string& key, const Parts&... expected) const {
    throw InputError(text(where_, ": key '", key, "' is ", member(key).dump(), ", expected ", expected...));
  }

  const Json& json_;
  std::string where_;
};

// The published form of a scheme's slowest stage.
Json scheme_row(const CostModel& cost, const strategy::Scheme& scheme, int world_size) {
  Quadratic slowest;
  CostModel::CellPart part;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const Quadratic times = cost.stage_times(scheme, stage);
    if (times.b < slowest.b) continue;
    slowest = times;
    part = cost.whole_stage(scheme, stage);
  }
  const Quadratic forward = cost.cell_times(scheme, CellKind::kForward, part);
  const int64_t layers = strategy::layers_of_stage(cost.options().shape.layers, scheme.pp, 0).size();
  // Where tokens take 85 % of a micro-batch's time and its constant the rest.
  const double util_len =
      slowest.b == 0 ? 0 : 0.85 / 0.15 * static_cast<double>(slowest.c_ns) / to_ns(slowest.b);
  Json row = {{"scheme", to_text(scheme)}};
  row.update(to_json(slowest));
  row.update({{"forward_share", slowest.b == 0 ? 0.0 : to_ns(forward.b) / to_ns(slowest.b)},
              {"bytes_per_token", layers * cost.options().saved_bytes_per_token_layer_by_tp.at(scheme.tp)},
              {"bytes_fixed", cost.fixed_bytes(scheme, world_size)},
              {"max_len", cost.max_len_tokens(scheme, world_size)},
              {"util_len", std::llround(util_len)}});
  return row;
}

Json layers_to_json(const CostModel::Options& options) {
  Json layers = Json::array();
  for (const auto& [tp, times] : options.layer_by_tp) {
    const EndTimes& ends = options.ends_by_tp.at(tp);
    layers.push_back({{"tp", tp},
                      {"forward", to_json(times.forward)},
                      {"backward_input", to_json(times.backward_input)},
                      {"backward_weight", to_json(times.backward_weight)},
                      {"embedding_forward", to_json(ends.embedding_forward)},
                      {"embedding_backward", to_json(ends.embedding_backward)},
                      {"head", to_json(ends.head)},
                      {"saved_bytes_per_token", options.saved_bytes_per_token_layer_by_tp.at(tp)},
                      {"deferred_bytes_per_token", options.deferred_bytes_per_token_layer_by_tp.at(tp)}});
  }
  return layers;
}

void read_layer(const Json& json, const std::string& where, CostModel::Options& options) {
  const Reader reader(json, where);
  const auto tp = static_cast<int>(reader.integer("tp", 1));
  const std::string fault = model::tp_fault(options.shape, tp);
  if (!fault.empty()) throw InputError(text(where, ": ", fault));
  if (options.layer_by_tp.contains(tp)) throw InputError(text(where, ": tp ", tp, " stands there twice"));
  using enum Reader::Vanishing;
  options.layer_by_tp[tp] = {reader.quadratic("forward", kRefused),
                             reader.quadratic("backward_input", kRefused),
                             reader.quadratic("backward_weight", kRefused)};
  options.ends_by_tp[tp] = {reader.quadratic("embedding_forward", kAllowed),
                            reader.quadratic("embedding_backward", kAllowed),
                            reader.quadratic("head", kRefused)};
  options.saved_bytes_per_token_layer_by_tp[tp] = reader.integer("saved_bytes_per_token", 1);
  options.deferred_bytes_per_token_layer_by_tp[tp] = reader.integer("deferred_bytes_per_token", 0);
}

Json memory_to_json(const MemoryModel& memory) {
  return {{"device_bytes", memory.device_bytes},
          {"element_bytes", memory.element_bytes},
          {"accumulator_bytes", memory.accumulator_bytes},
          {"owner_bytes_per_parameter", memory.owner_bytes_per_parameter},
          {"transient_bytes_per_token", memory.transient_bytes_per_token},
          {"logits_chunk_bytes", memory.logits_chunk_bytes}};
}

MemoryModel memory_from_json(const Reader& reader) {
  return {.device_bytes = reader.integer("device_bytes", 1),
          .element_bytes = reader.integer("element_bytes", 1),
          .accumulator_bytes = reader.integer("accumulator_bytes", 1),
          .owner_bytes_per_parameter = reader.integer("owner_bytes_per_parameter", 1),
          .transient_bytes_per_token = reader.integer("transient_bytes_per_token", 0),
          .logits_chunk_bytes = reader.integer("logits_chunk_bytes", 0)};
}

}  // namespace

Json to_json(const Calibration& calibration, const std::vector<strategy::Scheme>& schemes, int world_size) {
  const CostModel::Options& options = calibration.options;
  const CostModel cost(options);
  Json rows = Json::array();
  for (const strategy::Scheme& scheme : schemes) rows.push_back(scheme_row(cost, scheme, world_size));
  return {{"schema", kSchema},
          {"model", model::shape_to_hugging_face(options.shape, "float32", 0)},
          {"hardware", calibration.hardware},
          {"source", calibration.source},
          {"schemes", rows},
          {"layers", layers_to_json(options)},
          {"links", {{"intra", to_json(options.intra)}, {"inter", to_json(options.inter)}}},
          {"memory", memory_to_json(options.memory)},
          {"update_ps_per_element", options.update_ps_per_element},
          {"gpus_per_node", options.gpus_per_node}};
}

Calibration calibration_from_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  const Reader reader(json, name);
  const Reader links = reader.object("links");
  Calibration calibration{.hardware = base::require<std::string>(json, "hardware", name),
                          .source = base::require<std::string>(json, "source", name)};
  CostModel::Options& options = calibration.options;
  options.shape = model::shape_from_hugging_face(base::require<Json>(json, "model", name), name + ": model");
  const auto layers = base::require<Json>(json, "layers", name);
  if (!layers.is_array() || layers.empty()) throw InputError(text(name, ": key 'layers' has no entry"));
  for (size_t i = 0; i < layers.size(); ++i) read_layer(layers[i], text(name, ": layers[", i, "]"), options);
  options.intra = links.link("intra");
  options.inter = links.link("inter");
  options.memory = memory_from_json(reader.object("memory"));
  options.update_ps_per_element = reader.integer("update_ps_per_element", 0);
  options.gpus_per_node = static_cast<int>(reader.integer("gpus_per_node", 1));
  return calibration;
}

}  // namespace sluice::cost

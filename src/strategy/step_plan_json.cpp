// Writes and reads plan.json.
#include <algorithm>

#include "base/hash.h"
#include "base/json_fields.h"
#include "base/range.h"
#include "base/renamed_json.h"
#include "base/renames.h"
#include "base/text.h"
#include "strategy/listed_lane_parts.h"
#include "strategy/pass.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kSchema = "sluice.plan/2";
constexpr const char* kWayOut = "; correct it, or make the plan again with `sluice plan`";

Json piece_to_json(const Piece& scheduled) {
  return {{"sequence", scheduled.sequence}, {"begin", scheduled.begin}, {"end", scheduled.end}};
}

Json micro_batch_to_json(const PipelineMicroBatch& unit, const LanePart& lane_part) {
  Json pieces = Json::array();
  for (const Piece& scheduled : lane_part.pieces) pieces.push_back(piece_to_json(scheduled));
  const bool shared = unit.lanes > 1;
  Json json = {{"micro_batch", shared ? Json(unit.number) : Json()},
               {"exchange", shared ? Json(name_of(unit.exchange)) : Json()},
               {"pieces", std::move(pieces)}};
  if (shared && unit.exchange == Exchange::kNested) json["nested_lanes"] = unit.nested_lanes;
  if (unit.pass) json["pass"] = *unit.pass;
  if (!unit.memory.keeps_all()) {
    json["memory"] = {{"recompute", unit.memory.recomputes()},
                      {"offload_permille", unit.memory.offload_permille}};
    if (unit.memory.recomputes_some()) json["memory"]["recompute_permille"] = unit.memory.recompute_permille;
    if (unit.memory.recompute_dispatch) json["memory"]["recompute_dispatch"] = true;
  }
  return json;
}

// Experts by layer, then by lane of an expert group.
Json placement_to_json(const ExpertPlacement& placement, int lanes) {
  Json layers = Json::array();
  for (int64_t layer = 0; layer < std::ssize(placement.layers); ++layer) {
    Json& listed = layers.emplace_back(Json::array());
    for (int lane = 0; lane < lanes; ++lane) listed.push_back(placement.of_lane(layer, lanes, lane));
  }
  return layers;
}

Json pipeline_to_json(const PipelinePlan& plan) {
  Json lanes = Json::array();
  for (const std::vector<LanePart>& lane : lane_parts(plan)) {
    Json& listed = lanes.emplace_back(Json::array());
    for (const LanePart& each : lane)
      listed.push_back(micro_batch_to_json(plan.micro_batches[static_cast<size_t>(each.micro_batch)], each));
  }
  Json json = {{"scheme", to_text(plan.pipeline.scheme)},
               {"max_len", plan.max_len_tokens},
               {"ranks", plan.pipeline.ranks},
               {"lanes", std::move(lanes)}};
  if (!plan.stage_layers.empty()) json["stage_layers"] = plan.stage_layers;
  const Device& device = plan.pipeline.device;
  if (device != Device{})
    json["device"] = {{"slowdown_percent", device.slowdown_percent}, {"memory_bytes", device.memory_bytes}};
  if (device.low_precision)
    json["device"]["low_precision"] = {{"format", name_of(device.low_precision->format)},
                                       {"layers", device.low_precision->layers}};
  if (plan.pipeline.slowdown_percent != 100) json["slowdown_percent"] = plan.pipeline.slowdown_percent;
  if (plan.pipeline.placement)
    json["expert_placement"] = placement_to_json(*plan.pipeline.placement, plan.pipeline.scheme.ep);
  return json;
}

// read()'s result; InputErrors get `name` in front.
template <typename Read>
auto with_name(const std::string& name, const Read& read) {
  try {
    return read();
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
}

// Calls read(item, name of the item) for each item; InputError unless `value` is a list.
template <typename Read>
void for_each_item(const Json& value, const std::string& name, const Read& read) {
  if (!value.is_array()) throw InputError(text(name, " is ", base::excerpt(value), ": give a list"));
  for (size_t i = 0; i < value.size(); ++i) read(value[i], text(name, "[", i, "]"));
}

template <typename Read>
void for_each_item(const Json& value, const std::string& key, const std::string& name, const Read& read) {
  const Json* list = base::find(value, key);
  if (list == nullptr) base::refuse_without(key, "a list", name);
  for_each_item(*list, text(name, ": ", key), read);
}

ListedLanePart micro_batch_from_json(const Json& json, const std::string& name) {
  ListedLanePart micro_batch;
  if (json.is_object() && json.contains("micro_batch") && !json.at("micro_batch").is_null()) {
    micro_batch.micro_batch = base::require<int>(json, "micro_batch", name);
    const auto exchange = base::get_or<std::string>(json, "exchange", "ring", name);
    micro_batch.exchange = with_name(name, [&] { return parse_exchange(exchange); });
    micro_batch.nested_lanes = base::get_or<int>(json, "nested_lanes", 0, name);
  }
  if (json.is_object() && json.contains("pass") && !json.at("pass").is_null())
    micro_batch.pass = base::require<int>(json, "pass", name);
  if (json.is_object() && json.contains("memory")) {
    const Json& memory = json.at("memory");
    const std::string where = text(name, ": memory");
    const int layers = base::get_or<bool>(memory, "recompute", false, where) ? MemoryPolicy::kAll : 0;
    micro_batch.memory = {
        .recompute_permille = base::get_or<int>(memory, "recompute_permille", layers, where),
        .offload_permille = base::get_or<int>(memory, "offload_permille", 0, where),
        .recompute_dispatch = base::get_or<bool>(memory, "recompute_dispatch", false, where)};
  }
  for_each_item(json, "pieces", name, [&](const Json& piece, const std::string& where) {
    micro_batch.pieces.push_back({.sequence = base::require<int32_t>(piece, "sequence", where),
                                  .begin = base::require<int64_t>(piece, "begin", where),
                                  .end = base::require<int64_t>(piece, "end", where)});
  });
  return micro_batch;
}

ExpertPlacement placement_from_json(const Json& json, int lanes, const std::string& name) {
  ExpertPlacement placement;
  for_each_item(json, "expert_placement", name, [&](const Json& layer, const std::string& layer_name) {
    std::vector<int>& seats = placement.layers.emplace_back();
    size_t of_each = 0;
    for_each_item(layer, layer_name, [&](const Json& lane, const std::string& lane_name) {
      for_each_item(lane, lane_name, [&](const Json& expert, const std::string& where) {
        if (!base::holds_integer<int>(expert))
          throw InputError(text(where, " is ", base::excerpt(expert), ": give an expert, counted from 0"));
        seats.push_back(expert.get<int>());
      });
      if (&lane == &layer.front()) of_each = lane.size();
      if (lane.size() != of_each)
        throw InputError(text(lane_name, " has ", lane.size(), " experts: give every lane as many"));
    });
    if (layer.size() != static_cast<size_t>(lanes)) {
      throw InputError(
          text(layer_name, " lists experts of ", layer.size(), " lanes: give one list for each of ", lanes));
    }
  });
  return placement;
}

LowPrecisionGemms narrow_from_json(const Json& json, const std::string& name) {
  LowPrecisionGemms narrow;
  const auto format = base::require<std::string>(json, "format", name);
  const auto* const known = std::ranges::find(base::kLowPrecisionFormats, format, base::name_of);
  if (known == std::end(base::kLowPrecisionFormats))
    base::refuse(json.at("format"), "format", "one of bfloat16, int8 and float8", name);
  narrow.format = *known;
  for_each_item(json, "layers", name, [&](const Json& layer, const std::string& where) {
    const int after = narrow.layers.empty() ? -1 : narrow.layers.back();
    if (!base::holds_integer<int>(layer) || layer.get<int>() <= after)
      throw InputError(text(where, " is ", base::excerpt(layer), ": give layers, counted from 0, ascending"));
    narrow.layers.push_back(layer.get<int>());
  });
  return narrow;
}

// Reads the pipeline without its micro-batches; `lanes` receives the lane parts that make them.
PipelinePlan pipeline_from_json(const Json& json, const std::string& name,
                                std::vector<std::vector<ListedLanePart>>& lanes) {
  PipelinePlan plan;
  const auto scheme = base::require<std::string>(json, "scheme", name);
  plan.pipeline.scheme = with_name(name, [&] { return parse_scheme(scheme); });
  plan.max_len_tokens = base::require<int64_t>(json, "max_len", name);
  for_each_item(json, "ranks", name, [&](const Json& rank, const std::string& where) {
    if (!base::holds_integer<int>(rank))
      throw InputError(text(where, " is ", base::excerpt(rank), ": give a rank, counted from 0"));
    plan.pipeline.ranks.push_back(rank.get<int>());
  });
  if (json.contains("device")) {
    const Json& device = json.at("device");
    const std::string where = name + ": device";
    plan.pipeline.device = {
        .slowdown_percent = base::require_in(device, "slowdown_percent", base::Range<int>{1, 10'000}, where),
        .memory_bytes =
            base::require_in(device, "memory_bytes", base::Range<int64_t>{0, int64_t{1} << 50}, where)};
    if (device.contains("low_precision")) {
      plan.pipeline.device.low_precision = std::make_shared<const LowPrecisionGemms>(
          narrow_from_json(device.at("low_precision"), where + ": low_precision"));
    }
  }
  if (json.contains("slowdown_percent"))
    plan.pipeline.slowdown_percent =
        base::require_in(json, "slowdown_percent", base::Range<int>{1, 10'000}, name);
  if (json.contains("expert_placement")) {
    plan.pipeline.placement =
        std::make_shared<const ExpertPlacement>(placement_from_json(json, plan.pipeline.scheme.ep, name));
  }
  if (json.contains("stage_layers")) {
    for_each_item(json, "stage_layers", name, [&](const Json& layers, const std::string& where) {
      if (!base::holds_integer<int64_t>(layers))
        throw InputError(text(where, " is ", base::excerpt(layers), ": give a number of layers"));
      plan.stage_layers.push_back(layers.get<int64_t>());
    });
  }
  for_each_item(json, "lanes", name, [&](const Json& lane, const std::string& lane_name) {
    std::vector<ListedLanePart>& listed = lanes.emplace_back();
    for_each_item(lane, lane_name, [&](const Json& micro_batch, const std::string& where) {
      listed.push_back(micro_batch_from_json(micro_batch, where));
    });
  });
  if (lanes.size() != static_cast<size_t>(plan.pipeline.scheme.cp)) {
    throw InputError(text(name, " ", scheme, ": it has ", lanes.size(), " lists of micro-batches but ",
                          plan.pipeline.scheme.cp, " lanes: give one for each"));
  }
  return plan;
}

StepPlan unchecked_from_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  StepPlan plan;
  plan.step = base::require<int64_t>(json, "step", name);
  for_each_item(json, "sequences", name, [&](const Json& sequence, const std::string& where) {
    Sequence& read = plan.sequences.emplace_back();
    read.document = base::require<int64_t>(sequence, "document", where);
    read.begin_token = base::get_or<int64_t>(sequence, "begin", 0, where);
    read.length_tokens = base::require<int64_t>(sequence, "length", where);
    if (!sequence.contains("branches")) return;
    for_each_item(sequence, "branches", where, [&](const Json& branch, const std::string& place) {
      if (!base::holds_integer<int64_t>(branch))
        throw InputError(text(place, " is ", base::excerpt(branch), ": give a branch's tokens"));
      read.branches.push_back(branch.get<int64_t>());
    });
    validate_branches(read, plan.sequences.size() - 1);
  });
  for_each_item(json, "pipelines", name, [&](const Json& pipeline, const std::string& where) {
    std::vector<std::vector<ListedLanePart>> lanes;
    PipelinePlan read = pipeline_from_json(pipeline, where, lanes);
    const size_t number = plan.pipelines.size();
    read.micro_batches = with_name(name, [&] { return micro_batches_of(lanes, plan.sequences, number); });
    const bool numbered = std::ranges::any_of(read.micro_batches, [](const PipelineMicroBatch& micro_batch) {
      return micro_batch.pass.has_value();
    });
    if (!numbered) assign_passes(read);
    plan.pipelines.push_back(std::move(read));
  });
  plan.estimated_ns = base::get_or<int64_t>(json, "estimated_ns", 0, name);
  plan.lower_bound_ns = base::get_or<int64_t>(json, "lower_bound_ns", 0, name);
  if (json.contains("candidates")) {
    for_each_item(json, "candidates", name, [&](const Json& candidate, const std::string& where) {
      plan.candidates.push_back({.strategy = base::require<std::string>(candidate, "strategy", where),
                                 .estimated_ns = base::require<int64_t>(candidate, "estimated_ns", where)});
    });
  }
  return plan;
}

// Renames the keys of a plan of an older schema to this schema's.
Json of_now(const Json& file) {
  const Json* schema = base::find(file, "schema");
  const base::Rename* row = schema != nullptr && schema->is_string()
                                ? base::renamed("schema", schema->get<std::string>(), "plan.json")
                                : nullptr;
  if (row == nullptr) return file;
  Json json = file;
  base::take_new_names(json, "plan.json");
  json["schema"] = row->name;
  return json;
}

// Keys that repeat what the pipelines say must agree with them.
void check_redundant_keys(const StepPlan& plan, const Json& json) {
  const auto check = [&](const char* key, const std::string& expected) {
    const auto found = base::get_or<std::string>(json, key, expected, "plan");
    if (found != expected)
      throw InputError(text(key, " is '", found, "' but the pipelines make '", expected, "'"));
  };
  check("strategy", to_text(plan.strategy()));
  check("hash", base::hash_text(hash(plan)));
}

}  // namespace

Json to_json(const StepPlan& plan) {
  Json sequences = Json::array();
  for (const Sequence& sequence : plan.sequences) {
    sequences.push_back({{"document", sequence.document},
                         {"begin", sequence.begin_token},
                         {"length", sequence.length_tokens}});
    if (!sequence.branches.empty()) sequences.back()["branches"] = sequence.branches;
  }
  Json pipelines = Json::array();
  for (const PipelinePlan& pipeline : plan.pipelines) pipelines.push_back(pipeline_to_json(pipeline));
  Json candidates = Json::array();
  for (const CandidateEstimate& candidate : plan.candidates) {
    candidates.push_back({{"strategy", candidate.strategy}, {"estimated_ns", candidate.estimated_ns}});
  }
  return {{"schema", kSchema},
          {"step", plan.step},
          {"hash", base::hash_text(hash(plan))},
          {"strategy", to_text(plan.strategy())},
          {"estimated_ns", plan.estimated_ns},
          {"lower_bound_ns", plan.lower_bound_ns},
          {"gap_ppm", plan.gap_ppm()},
          {"candidates", std::move(candidates)},
          {"sequences", std::move(sequences)},
          {"pipelines", std::move(pipelines)}};
}

StepPlan step_plan_from_json(const Json& file, int world_size, const std::string& name) {
  const Json json = of_now(file);
  const StepPlan plan = unchecked_from_json(json, name);
  try {
    validate(plan, world_size);
    check_redundant_keys(plan, json);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what(), kWayOut));
  }
  return plan;
}

}  // namespace sluice::strategy

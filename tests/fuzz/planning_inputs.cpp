// Inputs of planning, and planning with what is left of them.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/lengths.h"
#include "cost/analytic.h"
#include "cost/calibration.h"
#include "cost/shipped.h"
#include "inputs.h"
#include "model/test_outline.h"
#include "mutate.h"
#include "plan/planner.h"
#include "program.h"
#include "session/strategy_file.h"
#include "strategy/cluster.h"

namespace sluice::fuzz {
namespace {

using base::Json;
using base::Rng;
using base::text;

constexpr int kWorldSize = 8;

cost::Calibration sound_calibration() {
  constexpr int kDegrees[] = {1, 2};
  return {.hardware = "none",
          .source = "analytic",
          .options =
              cost::analytic_options(model::test_outline(), {}, {.device_bytes = 128'000'000}, kDegrees, 4)};
}

std::vector<strategy::Sequence> sequences_of(std::span<const int64_t> lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) {
    sequences.push_back({.document = static_cast<int64_t>(sequences.size()), .length_tokens = length});
  }
  return sequences;
}

strategy::StepPlan plan_batch(const std::string& strategy, const cost::CostModel& cost,
                              std::span<const int64_t> lengths) {
  const plan::Planner planner({.world_size = kWorldSize,
                               .candidates = {strategy::parse_strategy(strategy, kWorldSize)},
                               .effort = plan::Effort::kQuick},
                              cost);
  return planner.plan(1, sequences_of(lengths));
}

// The undamaged inputs.
struct Sound {
  cost::CostModel cost{sound_calibration().options};
  Json calibration = to_json(sound_calibration(), {{1, 1, 1}, {1, 2, 1}}, kWorldSize);
  Json table = to_json(cost::shipped("a800-7b"), {}, kWorldSize);
  Json plan = to_json(plan_batch("<1,2,1> + 2x<2,1,1>", cost, std::vector<int64_t>{700, 300, 300, 64, 5, 1}));
  Json lengths = to_json(corpus::LengthDistribution(std::vector<int32_t>{3, 3, 17, 900, 900, 131072}));
  Json cluster = to_json(strategy::cluster_preset("a800x8", 2));
  Json strategies = session::strategies_to_json(
      {{.strategy = strategy::parse_strategy("<2,2,1> + 2x<1,2,1>", kWorldSize), .max_len_tokens = 4096},
       {.strategy = strategy::parse_strategy("<1,2,3>", kWorldSize), .max_len_tokens = 9000}},
      {.world_size = kWorldSize, .context_length = 4096, .sample_batches = {{900, 17}}}, cost,
      strategy::cluster_preset("a800x8", 2), {{"context_length", 4096}});
  std::string strategy = "1x<2,2,1> + 2x<1,1,2>";
  std::string strategies_text = "# mine\n1x<2,2,1> + 2x<1,1,2>\n\n 8x<1,1,1> # small\n<1,8,1>\n";
  std::string lengths_text = "# tokens\n17\n3 # three\n\n900\n131072\n";
};

void read_calibration(const Json& json) {
  const cost::Calibration calibration = cost::calibration_from_json(json, "case");
  const Json written = to_json(calibration, {}, kWorldSize);
  require(to_json(cost::calibration_from_json(written, "again"), {}, kWorldSize) == written,
          "a calibration changes when it is read again");
  const cost::CostModel cost(calibration.options);
  for (const char* strategy : {"2x<1,1,1>", "<2,2,1> + <1,3,1>"}) {
    try {
      plan_batch(strategy, cost, std::vector<int64_t>{2000, 600, 600, 33, 1});
    } catch (const base::Error&) {
    }
  }
}

void read_plan(const Json& json) {
  const strategy::StepPlan plan = strategy::step_plan_from_json(json, kWorldSize, "case");
  const Json written = to_json(plan);
  require(to_json(strategy::step_plan_from_json(written, kWorldSize, "again")) == written,
          "a plan changes when it is read again");
}

void read_lengths(const Json& json) {
  const corpus::LengthDistribution lengths = corpus::lengths_from_json(json, "case");
  const Json written = to_json(lengths);
  require(to_json(corpus::lengths_from_json(written, "again")) == written,
          "lengths change when they are read again");
}

void read_cluster(const Json& json) {
  const strategy::Cluster cluster = strategy::cluster_from_json(json, "case");
  require(strategy::cluster_from_json(to_json(cluster), "again") == cluster,
          "a cluster changes when it is read again");
  cost::rates_of(cluster);
}

void read_strategy(const std::string& input, const Sound& sound) {
  const strategy::Strategy strategy = strategy::parse_strategy(input, kWorldSize);
  const std::string written = to_text(strategy);
  require(to_text(strategy::parse_strategy(written, kWorldSize)) == written,
          "a strategy changes when it is read again");
  plan_batch(input, sound.cost, std::vector<int64_t>{100, 50, 20});
}

void plan_with(const std::vector<strategy::Strategy>& strategies, const Sound& sound) {
  for (const strategy::Strategy& strategy : strategies) {
    plan_batch(to_text(strategy), sound.cost, std::vector<int64_t>{100, 50, 20});
  }
}

}  // namespace

std::vector<Input> planning_inputs() {
  const auto sound = std::make_shared<const Sound>();
  return {
      {"strategy", [=](Rng& rng) { read_strategy(damage(sound->strategy, rng), *sound); }},
      {"lengths.txt", [=](Rng& rng) { corpus::lengths_from_text(damage(sound->lengths_text, rng), "case"); }},
      {"lengths.json", [=](Rng& rng) { read_lengths(damaged_json(sound->lengths, rng)); }},
      {"cluster.json", [=](Rng& rng) { read_cluster(damaged_json(sound->cluster, rng)); }},
      {"strategies.txt",
       [=](Rng& rng) {
         plan_with(session::strategies_from_text(damage(sound->strategies_text, rng), "case", kWorldSize),
                   *sound);
       }},
      {"strategies.json",
       [=](Rng& rng) {
         plan_with(session::strategies_from_json(damaged_json(sound->strategies, rng), "case", kWorldSize),
                   *sound);
       }},
      {"plan.json", [=](Rng& rng) { read_plan(damaged_json(sound->plan, rng)); }},
      {"published calibration.json", [=](Rng& rng) { read_calibration(damaged_json(sound->table, rng)); }},
      {"calibration.json", [=](Rng& rng) { read_calibration(damaged_json(sound->calibration, rng)); }},
  };
}

}  // namespace sluice::fuzz

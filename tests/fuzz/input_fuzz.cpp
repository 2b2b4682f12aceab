// input_fuzz --count N --seed S: calibrations, strategies, lengths, clusters and plans as files may hold
// them, damaged at random. Reading one ends in a result or in an error with a message. What was accepted is
// written and read again, which must give the same, and is used: batches are planned with calibrations and
// strategies. Meant for the sanitizers. Exit status 1 with the first case that fails in another way.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "cases.h"
#include "corpus/lengths.h"
#include "cost/analytic.h"
#include "cost/calibration.h"
#include "cost/shipped.h"
#include "mutate.h"
#include "plan/planner.h"
#include "strategy/cluster.h"

// Called by the sanitizers before they end the program.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace sluice::fuzz {
namespace {

using base::Json;
using base::Rng;
using base::text;

constexpr int kWorldSize = 8;
constexpr unsigned kLongestCaseSeconds = 60;

void require(bool condition, const std::string& fault) {
  if (!condition) throw base::RunError(fault);
}

cost::Calibration sound_calibration() {
  const model::Shape shape = {.layers = 4,
                              .hidden = 128,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_dim = 32,
                              .ffn_hidden = 336,
                              .vocab = 2048};
  constexpr int kDegrees[] = {1, 2};
  return {.hardware = "none",
          .source = "analytic",
          .options = cost::analytic_options(shape, {}, {.device_bytes = 128'000'000}, kDegrees, 4)};
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
  std::string strategy = "1x<2,2,1> + 2x<1,1,2>";
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

// Damaged values, then sometimes damaged bytes.
Json damaged_json(const Json& sound, Rng& rng) {
  const Json values = rng.below(4) > 0 ? damage(sound, rng) : sound;
  const std::string bytes = values.dump(-1, ' ', false, Json::error_handler_t::replace);
  return base::parse_json(rng.below(3) == 0 ? damage(bytes, rng) : bytes, "case");
}

void run_case(const Sound& sound, uint64_t seed) {
  Rng rng(seed, 4);
  switch (rng.below(10)) {
    case 0: return read_strategy(damage(sound.strategy, rng), sound);
    case 1: corpus::lengths_from_text(damage(sound.lengths_text, rng), "case"); return;
    case 2: return read_lengths(damaged_json(sound.lengths, rng));
    case 3: return read_cluster(damaged_json(sound.cluster, rng));
    case 4:
    case 5: return read_plan(damaged_json(sound.plan, rng));
    case 6:
    case 7: return read_calibration(damaged_json(sound.table, rng));
    default: return read_calibration(damaged_json(sound.calibration, rng));
  }
}

uint64_t current_case = 0;

void name_case() {
  const std::string line = text("case ", current_case, " ends the program\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

[[noreturn]] void end_by_signal(int number) {
  name_case();
  _exit(128 + number);
}

int run(const Cases& cases) {
  const Sound sound;
  int64_t refused = 0;
  for (int64_t i = 0; i < cases.count; ++i) {
    current_case = static_cast<uint64_t>(cases.seed + i);
    alarm(kLongestCaseSeconds);
    try {
      run_case(sound, current_case);
    } catch (const base::RunError& error) {
      std::cerr << "case " << current_case << ": " << error.what() << "\n";
      return 1;
    } catch (const base::Error& error) {
      ++refused;
      const std::string message = error.what();
      if (!message.empty() && message.size() < 2000) continue;
      std::cerr << "case " << current_case << ": no message of a readable size: '" << message << "'\n";
      return 1;
    } catch (const std::exception& error) {
      std::cerr << "case " << current_case << ": " << error.what() << "\n";
      return 1;
    }
  }
  std::cout << cases.count << " inputs: " << refused << " refused with a message, the others read\n";
  return 0;
}

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(sluice::fuzz::name_case);
  std::signal(SIGALRM, sluice::fuzz::end_by_signal);
  try {
    return sluice::fuzz::run(sluice::fuzz::parse_cases(argc, argv, "input_fuzz", {.count = 2000}));
  } catch (const sluice::base::Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_status();
  }
}

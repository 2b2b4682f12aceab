// Plans as text: every file of tests/golden/plan holds a name, a description, a batch and the plan that comes
// of it. SLUICE_UPDATE_GOLDEN=1 rewrites what is expected; review the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

using base::text;

constexpr const char* kDivider = "----\n";

std::filesystem::path folder() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "tests/golden/plan";
}

// "key: value" lines; "candidate" and "policy" may stand several times.
struct Golden {
  std::map<std::string, std::vector<std::string>> values;
  std::string head;
  std::string expected;

  int64_t number(const std::string& key, int64_t otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : base::parse_integer(found->second.front()).value();
  }
};

Golden read_golden(const std::filesystem::path& path) {
  Golden golden;
  const std::string bytes = base::read_file(path);
  const size_t divider = bytes.find(kDivider);
  golden.head = bytes.substr(0, divider);
  golden.expected = divider == std::string::npos ? "" : bytes.substr(divider + std::string(kDivider).size());
  for (const std::string& line : base::split(golden.head, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    golden.values[line.substr(0, colon)].emplace_back(base::trim(line.substr(colon + 1)));
  }
  return golden;
}

// "100, 3 x 250".
std::vector<strategy::Sequence> batch_of(const std::string& lengths) {
  std::vector<strategy::Sequence> batch;
  for (const std::string& term : base::split(lengths, ',')) {
    const size_t times = term.find('x');
    const int64_t count =
        times == std::string::npos ? 1 : base::parse_integer(base::trim(term.substr(0, times))).value();
    const std::string length = times == std::string::npos ? term : term.substr(times + 1);
    for (int64_t i = 0; i < count; ++i) {
      batch.push_back({.document = static_cast<int64_t>(batch.size()),
                       .length_tokens = base::parse_integer(base::trim(length)).value()});
    }
  }
  return batch;
}

// "lane 1: 250, 100 tokens" or "lanes 0-1, ring 4: 3000 tokens", with the policy where something is not kept.
std::string line_of(const strategy::Unit& unit) {
  std::vector<std::string> lengths;
  for (const strategy::UnitSequence& sequence : unit.sequences)
    lengths.push_back(text("#", sequence.sequence, " of ", sequence.length_tokens));
  const std::string lanes = unit.lanes == 1 ? text("lane ", unit.first_lane)
                                            : text("lanes ", unit.first_lane, "-", unit.end_lane() - 1, ", ",
                                                   name_of(unit.exchange), " ", unit.ring);
  const std::string memory = unit.memory.keeps_all() ? "" : text(", ", to_text(unit.memory));
  return text("  ", lanes, memory, ": ", base::join(lengths, ", "), "\n");
}

std::string planned(const Golden& golden) {
  PlannerOptions options{.world_size = static_cast<int>(golden.number("ranks", 1))};
  for (const std::string& candidate : golden.values.at("candidate"))
    options.candidates.push_back(strategy::parse_strategy(candidate, options.world_size));
  const auto policies = golden.values.find("offload_permille");
  if (policies != golden.values.end()) {
    options.policies.emplace_back();
    for (const std::string& permille : policies->second)
      options.policies.push_back({.offload_permille = static_cast<int>(*base::parse_integer(permille))});
  }
  if (golden.values.contains("method")) options.method = exact();
  const cost::CostModel cost = test_cost(golden.number("device_bytes", 128'000'000));
  const strategy::StepPlan plan =
      Planner(options, cost).plan(0, batch_of(golden.values.at("lengths").front()));
  std::string out =
      text(to_text(plan.strategy()), ": ", plan.estimated_ns, " ns, at least ", plan.lower_bound_ns, " ns\n");
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    out += text(to_text(pipeline.pipeline.scheme), " holds ", pipeline.max_len_tokens, "\n");
    for (const strategy::Unit& unit : pipeline.units) out += line_of(unit);
  }
  return out;
}

TEST(Golden, PlansAreAsReviewed) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    const Golden golden = read_golden(entry.path());
    const std::string actual = planned(golden);
    if (std::getenv("SLUICE_UPDATE_GOLDEN") != nullptr) {
      base::write_file_atomically(entry.path(), golden.head + kDivider + actual);
    } else {
      EXPECT_EQ(actual, golden.expected) << entry.path();
    }
  }
  EXPECT_GE(files, 12);
}

}  // namespace
}  // namespace sluice::plan

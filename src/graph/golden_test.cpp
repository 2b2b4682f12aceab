// Step graphs as text: every file of tests/golden/graph holds a name, a description, a plan and the graph
// that comes of it. SLUICE_UPDATE_GOLDEN=1 rewrites what is expected; review the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "graph/testing.h"

namespace sluice::graph {
namespace {

constexpr const char* kDivider = "----\n";

std::filesystem::path folder() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "tests/golden/graph";
}

// "key: value" lines; "load" may stand several times, once a pipeline.
struct Golden {
  std::map<std::string, std::string> values;
  std::vector<std::string> loads;
  std::string head;
  std::string expected;
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
    const std::string key = line.substr(0, colon);
    const std::string value(base::trim(line.substr(colon + 1)));
    if (key == "load") {
      golden.loads.push_back(value);
    } else {
      golden.values[key] = value;
    }
  }
  return golden;
}

std::string lowered(const Golden& golden) {
  const auto number = [&](const std::string& key) {
    return base::parse_integer(golden.values.at(key)).value();
  };
  const int ranks = static_cast<int>(number("ranks"));
  const model::Shape shape = testing::small_shape(number("layers"), golden.values.contains("tied"));
  const auto cost = testing::small_cost(shape, {.gpus_per_node = static_cast<int>(number("gpus_per_node")),
                                                .device_bytes = number("device_bytes")});
  BuildOptions options;
  if (golden.values.contains("purpose")) options.purpose = Purpose::kEvaluate;
  strategy::StepPlan plan = testing::plan_from_text(golden.values.at("strategy"), golden.loads, ranks);
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (strategy::Unit& unit : pipeline.units) {
      unit.memory.recompute = golden.values.contains("recompute");
      if (golden.values.contains("offload_permille"))
        unit.memory.offload_permille = static_cast<int>(number("offload_permille"));
    }
  }
  return to_text(build(plan, model::parameter_table(shape), cost, ranks, options));
}

TEST(Golden, GraphsAreAsReviewed) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    const Golden golden = read_golden(entry.path());
    const std::string actual = lowered(golden);
    if (std::getenv("SLUICE_UPDATE_GOLDEN") != nullptr) {
      base::write_file_atomically(entry.path(), golden.head + kDivider + actual);
    } else {
      EXPECT_EQ(actual, golden.expected) << entry.path();
    }
  }
  EXPECT_GE(files, 5);
}

}  // namespace
}  // namespace sluice::graph

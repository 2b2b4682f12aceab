// Plans as text: every file of tests/golden/plan holds a name, a description, a batch and the plan that comes
// of it. SLUICE_UPDATE_GOLDEN=1 rewrites what is expected; review the difference.
#include "base/golden.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

using base::Golden;
using base::text;

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

std::string list_of(const std::vector<strategy::MicroBatchSequence>& sequences) {
  std::vector<std::string> lengths;
  for (const strategy::MicroBatchSequence& sequence : sequences)
    lengths.push_back(text("#", sequence.sequence, " of ", sequence.length_tokens));
  return base::join(lengths, ", ");
}

// "lane 1: #2 of 250, #3 of 100" or "lanes 0-1, ring 4: #0 of 3000; whole on 1: #4 of 20", with the policy
// where something is not kept.
std::string line_of(const strategy::PipelineMicroBatch& micro_batch) {
  std::string own;
  for (size_t place = 0; place < micro_batch.own.size(); ++place) {
    if (!micro_batch.own[place].empty())
      own += text("; whole on ", micro_batch.first_lane + static_cast<int>(place), ": ",
                  list_of(micro_batch.own[place]));
  }
  const std::string lanes = micro_batch.lanes == 1
                                ? text("lane ", micro_batch.first_lane)
                                : text("lanes ", micro_batch.first_lane, "-", micro_batch.end_lane() - 1,
                                       ", ", name_of(micro_batch.exchange), " ", micro_batch.number);
  const std::string memory = micro_batch.memory.keeps_all() ? "" : text(", ", to_text(micro_batch.memory));
  return text("  ", lanes, memory, ": ", list_of(micro_batch.sequences), own, "\n");
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
  const cost::CostModel cost = test_cost(golden.number("device_bytes", 128'000'000));
  const strategy::StepPlan plan = Planner(options, cost).plan(0, batch_of(golden.value("lengths")));
  std::string out =
      text(to_text(plan.strategy()), ": ", plan.estimated_ns, " ns, at least ", plan.lower_bound_ns, " ns\n");
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    out += text(to_text(pipeline.pipeline.scheme), " holds ", pipeline.max_len_tokens, "\n");
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      out += line_of(micro_batch);
  }
  return out;
}

TEST(Golden, PlansAreAsReviewed) {
  const bool rewrite = std::getenv("SLUICE_UPDATE_GOLDEN") != nullptr;
  const auto use = rewrite ? base::GoldenUse::kRewrite : base::GoldenUse::kCompare;
  EXPECT_GE(base::check_golden("plan", use, planned), 11);
}

}  // namespace
}  // namespace sluice::plan

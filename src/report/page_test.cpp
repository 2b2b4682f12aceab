#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "graph/fsdp_moves.h"
#include "graph/test_graphs.h"
#include "report/closing_summary.h"
#include "report/run_summary.h"

namespace sluice::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SystemRun run_of(const std::string& name, const std::string& title, int64_t base_ns, uint64_t seed) {
  SystemRun run{.name = name, .title = title, .configuration = "DP2 TP4", .infeasible = "", .steps = {}};
  base::Rng rng(seed);
  for (int64_t step = 0; step < 30; ++step) {
    const int64_t time_ns = base_ns + rng.between(0, base_ns / 4);
    run.steps.push_back(
        {.step = step,
         .tokens = 200'000,
         .sequences = 400,
         .strategy = step % 3 == 0 ? "4x<8,2,1>" : "60x<1,1,1>",
         .time_ns = time_ns,
         .gap_ppm = 100 * step,
         .peak_bytes = int64_t{60} << 30,
         .lower_bound_ns = time_ns - 1000,
         .shares = {.compute_ns = 50 * time_ns, .bubble_ns = 10 * time_ns, .idle_ns = 4 * time_ns}});
  }
  return run;
}

Timeline timeline_of(uint64_t seed) {
  const graph::testing::RandomCase random = graph::testing::random_case(seed, {.max_lanes = 2});
  const graph::StepGraph graph = graph::build(random.plan, random.table, random.cost, random.world_size);
  return {.title = "Step 3",
          .step = 3,
          .system = "sluice",
          .records = graph::trace_records(graph),
          .peak_bytes = std::vector<int64_t>(static_cast<size_t>(random.world_size), 1 << 30)};
}

RunData simulated() {
  RunData data{.title = "example", .simulated = true, .ranks = 64, .hardware = "a800x8"};
  data.systems = {run_of("sluice", "Sluice", 3'000'000'000, 1),
                  run_of("megatron", "Megatron-LM", 5'000'000'000, 2)};
  data.systems.push_back(
      {.name = "flexsp", .title = "FlexSP", .infeasible = "the longest sequence does not fit"});
  data.facts = {{"cluster", "64 GPUs"}};
  data.lengths.add(100, 900);
  data.lengths.add(20'000, 7);
  data.timelines = {timeline_of(5)};
  data.device_bytes = int64_t{80} << 30;
  return data;
}

// The tags of HTML or SVG, in order, must nest; what scripts and styles hold is no markup.
::testing::AssertionResult is_balanced(std::string page) {
  for (const std::string name : {"script", "style"}) {
    const std::string begin = "<" + name + ">";
    const std::string end = "</" + name + ">";
    for (size_t at = page.find(begin); at != page.npos; at = page.find(begin, at)) {
      const size_t closed = page.find(end, at);
      if (closed == page.npos) return ::testing::AssertionFailure() << begin << " is open";
      page.erase(at, closed + end.size() - at);
    }
  }
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != page.npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    if (end == page.npos) return ::testing::AssertionFailure() << "a tag without an end";
    const std::string tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with("!") || tag.ends_with("/")) continue;
    const std::string name = tag.substr(tag.starts_with("/") ? 1 : 0, tag.find(' '));
    if (!tag.starts_with("/")) {
      open.push_back(name);
      continue;
    }
    if (open.empty() || open.back() != name)
      return ::testing::AssertionFailure() << "unexpected </" << name << ">";
    open.pop_back();
  }
  if (!open.empty()) return ::testing::AssertionFailure() << "<" << open.back() << "> is open";
  return ::testing::AssertionSuccess();
}

TEST(Page, IsBalancedAndNeedsNothingElse) {
  const std::string page = report_page(simulated());
  EXPECT_TRUE(is_balanced(page));
  EXPECT_THAT(page, Not(HasSubstr("NaN")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
  EXPECT_FALSE(std::regex_search(page, std::regex("url\\((?!#)")));
  for (const char* id :
       {"speed", "time", "timeline", "steps", "strategies", "gap", "lengths", "memory", "facts"})
    EXPECT_THAT(page, HasSubstr(base::text("<section id=\"", id, "\"")));
}

TEST(Page, ActsOfSeveralModelsHaveATable) {
  RunData data = simulated();
  EXPECT_THAT(report_page(data), Not(HasSubstr("<section id=\"acts\"")));
  for (StepRecord& step : data.systems.front().steps)
    step.acts = {{"teacher <b>", 3'000'000, 2'000'000, 1 << 20, 1 << 21}, {"update", 5'000'000, 0, 0, 0}};
  const std::string page = report_page(data);
  EXPECT_TRUE(is_balanced(page));
  EXPECT_THAT(page, HasSubstr("<section id=\"acts\""));
  EXPECT_THAT(page, HasSubstr("teacher &lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr(base::human_duration(3'000'000)));
}

// Figures without a colour are drawn black, which dark pages hide.
TEST(Page, EveryKindOfATimelineHasAColour) {
  RunData data = simulated();
  graph::TraceRecord gather = data.timelines.front().records.front();
  gather.category = graph::kGather;
  gather.stream = graph::Stream::kFsdp;
  data.timelines.front().records.push_back(gather);
  const std::string page = report_page(data);
  std::set<std::string> kinds;
  const std::regex rectangle("<rect class=\"([a-z]+)\"");
  for (std::sregex_iterator found(page.begin(), page.end(), rectangle), end; found != end; ++found)
    kinds.insert((*found)[1]);
  EXPECT_THAT(kinds, ::testing::IsSupersetOf({"forward", "pull", "gather"}));
  for (const std::string& kind : kinds)
    EXPECT_THAT(page, HasSubstr(base::text(".", kind, " { fill: "))) << kind;
}

// A line's name stands beside the chart and can't break: what it takes is left free.
TEST(Page, ChartsLeaveRoomForTheirLongestName) {
  RunData data = simulated();
  data.systems[1].title = "a system with quite a long name";
  EXPECT_THAT(report_page(data), HasSubstr("style=\"--letters:31\""));
}

TEST(Page, SameDataSameBytes) { EXPECT_EQ(report_page(simulated()), report_page(simulated())); }

TEST(Page, HostileNamesAreText) {
  RunData data = simulated();
  const std::string hostile = "</title><script>alert('x')</script>\"&\x01\xFF";
  data.title = hostile;
  data.hardware = hostile;
  data.facts = {{hostile, hostile}};
  data.notes = {hostile};
  for (SystemRun& run : data.systems) {
    run.title = hostile;
    run.configuration = hostile;
    if (run.steps.empty()) run.infeasible = hostile;
    for (StepRecord& step : run.steps) step.strategy = hostile;
  }
  for (Timeline& timeline : data.timelines) {
    timeline.title = hostile;
    for (graph::TraceRecord& record : timeline.records) record.label = hostile;
  }
  const std::string page = report_page(data);
  EXPECT_TRUE(is_balanced(page));
  EXPECT_THAT(page, Not(HasSubstr("alert('x')")));
  EXPECT_THAT(page, Not(HasSubstr("\x01")));
}

TEST(Page, AnyPartMayBeMissing) {
  RunData data{.title = "bare"};
  data.systems = {{.name = "sluice", .title = "Sluice"}};
  EXPECT_TRUE(is_balanced(report_page(data)));
  data.systems.front().steps = {{.time_ns = 1'000'000}};
  EXPECT_TRUE(is_balanced(report_page(data)));
  data.timelines = {{.title = "empty"}};
  EXPECT_TRUE(is_balanced(report_page(data)));
}

TEST(Page, ManyRanksStaySmallAndSaySo) {
  RunData data = simulated();
  Timeline timeline{.title = "many", .system = "sluice"};
  base::Rng rng(7);
  for (int rank = 0; rank < 1024; ++rank) {
    int64_t at_ns = rng.between(0, 1000);
    for (int cell = 0; cell < 200; ++cell) {
      const int64_t end_ns = at_ns + rng.between(100, 10'000);
      timeline.records.push_back({.label = "F p0 s1 m3 L4-8",
                                  .category = cell % 2 == 0 ? "forward" : "backward",
                                  .rank = rank,
                                  .start_ns = at_ns,
                                  .end_ns = end_ns});
      at_ns = end_ns;
    }
  }
  data.timelines = {timeline};
  const std::string page = report_page(data);
  EXPECT_LT(page.size(), 4'000'000u);
  EXPECT_THAT(page, HasSubstr("of 1024 different rows are shown"));
  EXPECT_THAT(page, HasSubstr("neighbours too narrow to see are joined"));
}

TEST(Verdict, ComparesWithTheBestOther) {
  RunData data = simulated();
  data.systems.push_back(run_of("deepspeed", "DeepSpeed", 9'000'000'000, 3));
  const Verdict verdict = verdict_of(data);
  EXPECT_THAT(verdict.headline,
              HasSubstr("the speed of Megatron-LM (DP2 TP4), the best of 2 other systems."));
  EXPECT_THAT(verdict.headline, HasSubstr("on 64\u00a0A800: 1.6"));
  EXPECT_THAT(verdict.detail, HasSubstr("those of Megatron-LM for 78.1\u00a0%"));
}

TEST(Verdict, SaysWhenAnotherSystemIsFaster) {
  RunData data = simulated();
  std::swap(data.systems[0].steps, data.systems[1].steps);
  EXPECT_THAT(verdict_of(data).headline, HasSubstr("slower than Megatron-LM (DP2 TP4), which needs "));
}

TEST(Verdict, OfTrainingTellsLossAndPrediction) {
  RunData data{.title = "run", .ranks = 4};
  data.systems = {run_of("sluice", "Sluice", 1'000'000'000, 4)};
  for (StepRecord& step : data.systems[0].steps) {
    step.predicted_ns = step.time_ns * 11 / 10;
    step.loss = 5.0 - 0.1 * static_cast<double>(step.step);
  }
  const Verdict verdict = verdict_of(data);
  EXPECT_THAT(verdict.headline, HasSubstr("Training took 1."));
  EXPECT_THAT(verdict.detail, HasSubstr("The loss went from 5.000 to 2.100"));
  EXPECT_THAT(verdict.detail, HasSubstr("within 10.0\u00a0%"));
}

TEST(Page, ShowsFiguresOfHeads) {
  RunData data{.title = "run", .ranks = 2, .systems = {run_of("sluice", "Sluice", 3'000'000'000, 1)}};
  for (StepRecord& step : data.systems[0].steps) step.loss = 1;
  EXPECT_THAT(report_page(data), Not(HasSubstr("Figures of held-out text")));
  data.evaluations = {{.step = 1, .validation_loss = 2, .targets = 10, .figures = {{"recall_at_10", 0.25}}},
                      {.step = 2, .validation_loss = 1, .targets = 10, .figures = {{"recall_at_10", 0.5}}}};
  const std::string page = report_page(data);
  EXPECT_THAT(page, HasSubstr("Figures of held-out text over steps"));
  EXPECT_THAT(page, HasSubstr("recall_at_10"));
  EXPECT_THAT(closing_summary(data), HasSubstr("held out        recall_at_10 0.5000"));
}

TEST(Page, ShowsWhatWasLearnt) {
  RunData data{.title = "run", .ranks = 2, .systems = {run_of("sluice", "Sluice", 3'000'000'000, 1)}};
  EXPECT_THAT(report_page(data), Not(HasSubstr("id=\"learning\"")));
  data.evaluations = {{.step = 1, .validation_loss = 2, .targets = 10, .reward = 0.25}};
  for (StepRecord& step : data.systems[0].steps) {
    step.reward = 0.1 * static_cast<double>(step.step);
    step.response_mean = 100;
    step.response_p99 = 300;
    step.rollout_ns = step.time_ns;
  }
  const std::string rewarded = report_page(data);
  EXPECT_THAT(rewarded, HasSubstr("Rewards"));
  EXPECT_THAT(rewarded, HasSubstr("likeliest answers"));
  EXPECT_THAT(rewarded, HasSubstr("generating responses"));
  for (StepRecord& step : data.systems[0].steps) {
    step.reward.reset();
    step.reward_margin = 0.5;
    step.accuracy = 0.75;
  }
  EXPECT_THAT(report_page(data), HasSubstr("share that is right"));
}

TEST(SpeedUp, IsOverTheStepsInCommon) {
  SystemRun first{.steps = {{.step = 1, .time_ns = 100}, {.step = 2, .time_ns = 200}}};
  const SystemRun other{.steps = {{.step = 2, .time_ns = 300}, {.step = 3, .time_ns = 900}}};
  EXPECT_DOUBLE_EQ(speed_up(first, other).mean, 1.5);
  first.steps.pop_back();
  EXPECT_DOUBLE_EQ(speed_up(first, other).mean, 0);
}

TEST(Page, ShowsWhatStepsTakeWhereGathersTakeWhatWasMeasured) {
  RunData data = simulated();
  ASSERT_GT(data.systems.size(), 1);
  EXPECT_THAT(report_page(data), Not(HasSubstr("FlexSP measured")));
  data.systems[0].measured_passes_step_ns = 5'800'000'000;
  for (const size_t systems : {data.systems.size(), size_t{1}}) {
    data.systems.resize(systems);
    const std::string page = report_page(data);
    EXPECT_TRUE(is_balanced(page));
    EXPECT_THAT(page, HasSubstr("5.80\u00a0s if gathers between nodes cost what FlexSP measured"));
    EXPECT_THAT(page, HasSubstr("as measured, each of them costs what FlexSP measured"));
  }
}

TEST(Page, PredictedMemoryStandsBesideTheMeasured) {
  RunData data{.title = "run", .ranks = 2, .systems = {run_of("sluice", "Sluice", 3'000'000'000, 1)}};
  for (StepRecord& step : data.systems[0].steps) step.predicted_peak_bytes = int64_t{61} << 30;
  const int64_t gib = int64_t{1} << 30;
  data.timelines = {
      {.title = "Step 3, measured",
       .step = 3,
       .system = "sluice",
       .measured = true,
       .peak_bytes = {3 * gib, gib}},
      {.title = "Step 3, predicted", .step = 3, .system = "sluice", .peak_bytes = {4 * gib, 2 * gib}}};
  const std::string page = report_page(data);
  EXPECT_TRUE(is_balanced(page));
  EXPECT_THAT(page, HasSubstr("The line stands where it was predicted, at 61.0\u00a0GiB."));
  EXPECT_THAT(page, HasSubstr("Step 3, measured: a bar a rank; lines: predicted"));
  EXPECT_THAT(page, HasSubstr("rank 1: 1.00\u00a0GiB, predicted 2.00\u00a0GiB"));
  EXPECT_THAT(page, Not(HasSubstr("Step 3, predicted: a bar a rank")));
}

}  // namespace
}  // namespace sluice::report

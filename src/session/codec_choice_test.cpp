#include "session/codec_choice.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "cost/shipped.h"
#include "session/candidates.h"
#include "session/propose_for_both.h"

namespace sluice::session {
namespace {

constexpr int kCodecRanks = 16;

// Two nodes of eight devices; their adapters move so many bytes a second.
PlanningTask task_with_links(int64_t bytes_per_s) {
  cost::CostModel::Options options = cost::shipped("a800-7b").options;
  options.inter.bytes_per_s = bytes_per_s;
  options.code_ps_per_element = 10;
  PlanningTask task{.world_size = kCodecRanks,
                    .cost = cost::CostModel(std::move(options)),
                    .context_length = 8192,
                    .choices = {.max_strategies = 2, .max_cp = kCodecRanks, .fsdp = true}};
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 300; ++i) lengths.push_back(60 + (i * i * 37) % (i % 25 == 0 ? 8100 : 900));
  task.sample_batches = sample_batches(lengths, 32'768, /*seed=*/3);
  return task;
}

TEST(CodecChoice, FewerBitsAreChosenWhereLinksAreSlow) {
  const PlanningTask task = task_with_links(200'000'000);
  const std::vector<plan::Proposal> proposals = propose(task);
  const auto choice = choose_codecs(task, proposals);
  ASSERT_TRUE(choice.has_value());
  ASSERT_FALSE(choice->settings.empty());
  EXPECT_EQ(choice->settings.front().rfind("link.push", 0), 0U) << choice->settings.front();
  EXPECT_LE(choice->mean_ns, choice->wide_mean_ns - choice->wide_mean_ns / 50);
  EXPECT_NE(choice->codecs, strategy::WireCodecs{});
  const base::Json json = to_json(*choice);
  EXPECT_EQ(json.at("settings").size(), choice->settings.size());
  EXPECT_EQ(json.at("mean_step_ns"), choice->mean_ns);
}

TEST(CodecChoice, NothingIsLostWhereItSavesNothing) {
  const PlanningTask task = task_with_links(int64_t{1} << 44);
  EXPECT_FALSE(choose_codecs(task, propose(task)).has_value());
  EXPECT_FALSE(choose_codecs(task, {}).has_value()) << "no proposal";
}

TEST(CodecChoice, OneRankSendsNothing) {
  PlanningTask task = task_with_links(1'000'000);
  const std::vector<plan::Proposal> proposals = propose(task);
  task.world_size = 1;
  EXPECT_FALSE(choose_codecs(task, proposals).has_value());
}

}  // namespace
}  // namespace sluice::session

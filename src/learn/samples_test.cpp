// Continuations that a run logs while it trains.
#include "learn/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "learn/test_small_run.h"

namespace sluice::learn {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class LoggedSamples : public SmallRuns {
 protected:
  LoggedSamples() {
    write("corpus", {{"q1=7 a b", "c d"}});
    write("held", {{"e f g e", "f g e f"}, {"", ""}});
  }
  config::RunConfig sampling(std::vector<std::string> more) {
    more.insert(more.end(), {"train.sample_every=2"});
    return config(wide(more));
  }
};

TEST_F(LoggedSamples, PromptsAreContinuedByTheLikeliestTokens) {
  OpenRun run(sampling({"train.sample_prompts=['q', '\u00e9=']"}));
  RolloutGenerator generator(*run);
  say(*run, {{id("q"), {id("a")}},
             {id("a"), {id("b")}},
             {id("b"), {end()}},
             {id("="), {id("7")}},
             {id("7"), {end()}}});
  Samples samples(*run, generator);
  log_to_file();
  samples.log(5);
  EXPECT_THAT(logged(), HasSubstr("after step 5: sample  q | ab\n"));
  EXPECT_THAT(logged(), HasSubstr("after step 5: sample  \u00e9= | 7\n"));
}

TEST_F(LoggedSamples, WithoutPromptsHeldOutDocumentsBegin) {
  OpenRun run(sampling({base::text("data.validation=['", path("held"), "']")}));
  RolloutGenerator generator(*run);
  say(*run, {});
  Samples samples(*run, generator);
  log_to_file();
  samples.log(1);
  EXPECT_THAT(logged(), HasSubstr("sample  e f g e"));
  EXPECT_THAT(logged(), testing::Not(HasSubstr("q1=")));
}

TEST_F(LoggedSamples, TheyAreDueEverySoManyStepsAndAtTheEnd) {
  OpenRun run(sampling({}));
  RolloutGenerator generator(*run);
  const Samples samples(*run, generator);
  EXPECT_FALSE(samples.due(1, false));
  EXPECT_TRUE(samples.due(2, false));
  EXPECT_TRUE(samples.due(3, true));
}

TEST_F(LoggedSamples, APromptWithoutATokenIsRefused) {
  OpenRun run(sampling({"train.sample_prompts=['a', '']"}));
  RolloutGenerator generator(*run);
  EXPECT_THAT([&] { Samples(*run, generator); },
              ThrowsMessage<base::InputError>(HasSubstr("train.sample_prompts has a text without a token")));
}

TEST_F(LoggedSamples, APromptThatFillsTheContextIsCut) {
  OpenRun run(sampling({base::text("train.sample_prompts=['", std::string(60, 'f'), "']")}));
  RolloutGenerator generator(*run);
  say(*run, {{id("f"), {id("g")}}, {id("g"), {id("g")}}});
  Samples samples(*run, generator);
  log_to_file();
  samples.log(1);
  EXPECT_THAT(logged(), HasSubstr(std::string(31, 'f') + " | g\n")) << "one token of room is left";
}

}  // namespace
}  // namespace sluice::learn

#include "config/doubts.h"

#include <gmock/gmock.h>

#include "config/config_file.h"

namespace sluice::config {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> doubts_of(const std::vector<std::string>& settings) {
  return doubts(parse_config("[model]\nhf = 'x'\n[data]\ntrain = [['c', 1]]\n[train]\nsteps = 40\n",
                             "run.toml", settings));
}

TEST(Doubts, NoneOfWhatIsUsual) {
  EXPECT_THAT(doubts_of({}), IsEmpty());
  EXPECT_THAT(doubts_of({"optimizer.warmup_steps=0", "train.steps=1"}), IsEmpty());
  EXPECT_THAT(doubts_of({"optimizer.decay=\"wsd\"", "optimizer.decay_steps=30"}), IsEmpty());
  EXPECT_THAT(doubts_of({"optimizer.decay=\"constant\"", "optimizer.lr=1e-6"}), IsEmpty());
  EXPECT_THAT(doubts_of({"train.eval_every=5", "data.validation_fraction=0.1"}), IsEmpty());
}

TEST(Doubts, SchedulesThatDoNotFitTheRun) {
  EXPECT_THAT(
      doubts_of({"optimizer.warmup_steps=400", "optimizer.lr=1e-3"}),
      ElementsAre("optimizer.warmup_steps is 400, but the run has 40 (train.steps): the rate only rises, to "
                  "0.0001 where optimizer.lr is 0.001"));
  EXPECT_THAT(doubts_of({"optimizer.lr=1e-5", "optimizer.min_lr=1e-3"}),
              ElementsAre(HasSubstr("min_lr is 0.001, above optimizer.lr, which is 1e-05")));
  EXPECT_THAT(doubts_of({"optimizer.decay=wsd", "optimizer.decay_steps=31"}),
              ElementsAre(HasSubstr("decay_steps is 31, but 30 steps of the run follow the warm-up")));
  EXPECT_THAT(doubts_of({"optimizer.decay_steps=5"}),
              ElementsAre(HasSubstr("which only decay = \"wsd\" heeds")));
  EXPECT_THAT(doubts_of({"optimizer.lr=0", "optimizer.min_lr=0"}), ElementsAre(HasSubstr("lr is 0")));
}

TEST(Doubts, PatienceAndTheBestModelNeedEvaluations) {
  EXPECT_THAT(doubts_of({"train.patience=2", "checkpoint.keep_best=true"}),
              ElementsAre(HasSubstr("train.patience is 2, but no evaluation is made"),
                          HasSubstr("checkpoint.keep_best is true, but no evaluation is made")));
  EXPECT_THAT(doubts_of({"train.patience=2", "train.eval_every=5", "data.validation_fraction=0.1"}), IsEmpty());
}

TEST(Doubts, AClusterThatTrainingDoesNotHeed) {
  EXPECT_THAT(doubts_of({"cluster.preset=h100x8", "cluster.nodes=2"}),
              ElementsAre(HasSubstr("cluster.preset is h100x8: plan and simulate plan for it")));
}

TEST(Doubts, AdaptersThatDrownTheModel) {
  EXPECT_THAT(doubts_of({"lora.rank=8", "lora.alpha=32", "optimizer.lr=5e-3"}),
              ElementsAre(AllOf(HasSubstr("optimizer.lr is 0.005 and lora.alpha / lora.rank is 4"),
                                HasSubstr("their product, 0.02, is above 0.01"))));
  EXPECT_THAT(doubts_of({"lora.rank=8", "lora.alpha=32", "optimizer.lr=5e-4"}), IsEmpty());
  EXPECT_THAT(doubts_of({"lora.rank=16", "lora.alpha=32", "optimizer.lr=2e-4"}), IsEmpty());
  EXPECT_THAT(doubts_of({"lora.rank=0", "lora.alpha=32", "optimizer.lr=5e-2"}), IsEmpty());
}

TEST(Doubts, EvaluationsAndPhasesThatNeverCome) {
  EXPECT_THAT(doubts_of({"train.eval_every=5"}),
              ElementsAre(HasSubstr("train.eval_every is 5, but there is nothing")));
  EXPECT_THAT(doubts(parse_config("[model]\nhf = 'x'\n[data]\ntrain = [['c', 1]]\n[train]\nsteps = 40\n"
                                  "[[phase]]\nstep = 40\n",
                                  "run.toml", {})),
              ElementsAre(HasSubstr("[[phase]] begins with step 40, but the run has 40")));
}

}  // namespace
}  // namespace sluice::config

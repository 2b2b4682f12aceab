#include "report/next_commands.h"

#include <gtest/gtest.h>

namespace sluice::report {
namespace {

TEST(NextCommands, FinishedRunIsTriedServedExportedAndTrainedOn) {
  const std::string said = next_commands({.directory = "runs/x", .steps_done = 12, .steps = 12});
  EXPECT_EQ(said,
            "the model is runs/x/checkpoints/step-12\n"
            "  try it    sluice generate --model runs/x --prompt TEXT\n"
            "  serve it  sluice serve --model runs/x\n"
            "  export it sluice export runs/x --out FOLDER\n"
            "  train on  sluice train --config runs/x/config.toml --resume auto --set train.steps=24");
}

TEST(NextCommands, RunsOfLocalRanksGoOnWithAsMany) {
  const std::string said =
      next_commands({.directory = "runs/x", .steps_done = 5, .steps = 12, .local_ranks = 4});
  EXPECT_NE(said.find("sluice train --config runs/x/config.toml --resume auto --nproc 4\n"),
            std::string::npos)
      << said;
}

TEST(NextCommands, StoppedRunIsTrainedOnFirst) {
  const std::string said = next_commands(
      {.directory = "runs/x", .steps_done = 5, .steps = 12, .model = EndOfRun::Model::kAdapters});
  EXPECT_TRUE(
      said.starts_with("the model is runs/x/checkpoints/step-5, after 5 of 12 steps\n"
                       "  train on  sluice train --config runs/x/config.toml --resume auto\n"))
      << said;
  EXPECT_NE(said.find("--adapters"), std::string::npos);
}

TEST(NextCommands, BestModelIsTheOneToUse) {
  const std::string said =
      next_commands({.directory = "runs/x", .steps_done = 12, .steps = 12, .best_step = 8});
  EXPECT_NE(said.find("the model is runs/x/checkpoints/step-12\nthe best by its evaluation is "
                      "runs/x/checkpoints/step-8\n"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("sluice serve --model runs/x/checkpoints/step-8\n"), std::string::npos) << said;
}

TEST(NextCommands, ModelsThatEndInAHeadAreTriedByTheirNumbers) {
  const auto said = [](EndOfRun::Output output) {
    return next_commands({.directory = "runs/x", .steps_done = 1, .steps = 1, .output = output});
  };
  EXPECT_NE(said(EndOfRun::Output::kEmbeddings).find("try it    sluice embed FILE --model runs/x\n"),
            std::string::npos);
  EXPECT_NE(said(EndOfRun::Output::kNumbers)
                .find("try it    sluice eval --model runs/x --corpus PREFIX --scores FILE\n  serve it"),
            std::string::npos);
  const std::string tokens = said(EndOfRun::Output::kTokenNumbers);
  EXPECT_EQ(tokens.find("generate"), std::string::npos) << tokens;
  EXPECT_EQ(tokens.find("serve"), std::string::npos) << tokens;
}

TEST(NextCommands, PathsAreQuotedForAShell) {
  const std::string said = next_commands({.directory = "my runs/l'été", .steps_done = 1, .steps = 1});
  EXPECT_NE(said.find("sluice serve --model 'my runs/l'\\''été'\n"), std::string::npos) << said;
}

}  // namespace
}  // namespace sluice::report

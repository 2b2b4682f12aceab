// The training loop, in this process and on one rank: steps, evaluations, checkpoints, and its ends.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "session/data.h"
#include "train/test_training_loop.h"

namespace sluice::train {
namespace {

TEST_F(TrainingLoop, RunsEvaluatesAndSaves) {
  const std::filesystem::path scraped = directory_ / "sluice.prom";
  const config::RunConfig whole = config("whole", {base::text("log.prometheus='", scraped.string(), "'")});
  const std::vector<base::Json> lines = train(whole);
  EXPECT_NE(base::read_file(scraped).find("\nsluice_steps_total 6\n"), std::string::npos);
  std::vector<int64_t> steps, evaluations;
  for (const base::Json& line : lines) {
    (line.contains("loss") ? steps : evaluations).push_back(line.at("step"));
    EXPECT_TRUE(line.at("fallback").is_null()) << line;
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(evaluations, (std::vector<int64_t>{2, 5}));
  EXPECT_TRUE(has_checkpoint(whole, 6));
  EXPECT_TRUE(std::filesystem::exists(whole.log.dir / "report.html"));
}

TEST_F(TrainingLoop, FinishedRunHasAModelWithoutCheckpointEvery) {
  const config::RunConfig config = this->config("last", {"checkpoint.every=0", "train.epochs=0.1"});
  EXPECT_EQ(train(config).size(), 3U);  // two steps and an evaluation
  EXPECT_TRUE(has_checkpoint(config, 2));
  EXPECT_FALSE(has_checkpoint(config, 1));
}

// With a rate of 0 no evaluation is better than the first one.
TEST_F(TrainingLoop, PatienceEndsTheRunAndTheBestModelStays) {
  const config::RunConfig config =
      this->config("patient", {"optimizer.lr=0", "optimizer.min_lr=0", "optimizer.weight_decay=0",
                               "train.eval_every=1", "train.patience=3", "checkpoint.every=0",
                               "checkpoint.keep=1", "checkpoint.keep_best=true"});
  std::vector<int64_t> steps;
  for (const base::Json& line : train(config)) {
    if (line.contains("loss")) steps.push_back(line.at("step"));
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(has_checkpoint(config, 1));
  EXPECT_FALSE(has_checkpoint(config, 2));
  EXPECT_TRUE(has_checkpoint(config, 4));
  // A continued run still knows its best evaluation.
  EXPECT_EQ(train(config, "auto").size(), 10U);  // one step more and its evaluation
  EXPECT_TRUE(has_checkpoint(config, 1));
  EXPECT_TRUE(has_checkpoint(config, 5));
}

// A list of the batches that a run drew repeats it, also from the middle.
TEST_F(TrainingLoop, ListedBatchesRepeatADrawnRun) {
  const std::vector<base::Json> drawn = train(config("drawn", {"optimizer.decay=constant"}));
  config::RunConfig resolved = config("drawn");
  config::resolve_model(resolved);
  session::PhasedSampler batches = session::open_data(resolved).sampler();
  std::string lines;
  for (int step = 0; step < 6; ++step) {
    base::Json documents = base::Json::array();
    for (const corpus::Sample& sample : batches.next().samples)
      documents.push_back({sample.document, sample.begin_token, sample.length_tokens});
    lines += base::Json{{"documents", documents}}.dump() + "\n";
  }
  base::write_file_atomically(directory_ / "batches.jsonl", lines);
  const std::vector<std::string> listed = {
      base::text("data.batches='", (directory_ / "batches.jsonl").string(), "'"), "optimizer.decay=constant",
      "data.seed=5", "model.seed=1"};
  std::vector<std::string> half = listed;
  half.emplace_back("train.steps=3");
  train(config("listed", half));
  const std::vector<base::Json> repeated = train(config("listed", listed), "auto");
  ASSERT_EQ(repeated.size(), drawn.size());
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i].contains("loss")) {
      EXPECT_EQ(repeated[i].at("loss"), drawn[i].at("loss")) << i;
    }
  }
}

TEST_F(TrainingLoop, ResumedRunIsTheUninterruptedOne) {
  const std::vector<std::string> constant = {
      "optimizer.decay=constant"};  // rates that don't depend on the end
  const std::vector<base::Json> whole = train(config("whole", constant));
  train(config("parts", {"train.steps=3", constant[0]}));
  const std::vector<base::Json> parts = train(config("parts", constant), "auto");
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "validation_loss"}) {
      EXPECT_EQ(parts[i].value(key, base::Json()), whole[i].value(key, base::Json())) << key;
    }
  }
}

// A configuration written by a program that had another name for checkpoint.async.
TEST_F(TrainingLoop, ConfigurationWithAnOldKeyIsNotComparedAndTheRunGoesOn) {
  const std::string constant = "optimizer.decay=constant";
  const std::vector<base::Json> whole = train(config("whole", {constant}));
  const config::RunConfig half = config("parts", {constant, "train.steps=3"});
  train(half);
  const auto path = half.log.dir / "checkpoints" / "step-3" / "manifest.json";
  base::Json manifest = base::read_json(path);
  auto saved = manifest["config"].get<std::string>();
  const std::string key = "async = ";
  ASSERT_NE(saved.find(key), std::string::npos) << saved;
  manifest["config"] = saved.replace(saved.find(key), key.size(), "behind = ");
  manifest.erase("hash");
  manifest["hash"] = base::hash_text(base::hash_bytes(manifest.dump()));
  base::write_json(path, manifest);
  base::configure_log({.file = directory_ / "log"});
  const std::vector<base::Json> parts = train(config("parts", {constant}), "auto");
  base::configure_log({});
  const std::string said = base::read_file(directory_ / "log");
  EXPECT_NE(said.find("unknown key 'checkpoint.behind'"), std::string::npos) << said;
  EXPECT_NE(said.find("the changes since then are not known"), std::string::npos) << said;
  EXPECT_EQ(parts.back().value("validation_loss", 0.0), whole.back().value("validation_loss", 1.0));
}

TEST_F(TrainingLoop, RunThatWaitsForItsSavesHasThemAll) {
  const config::RunConfig waiting =
      config("waiting", {"checkpoint.async=false", "checkpoint.every=1", "checkpoint.keep=4"});
  const std::vector<base::Json> lines = train(waiting);
  for (const base::Json& line : lines) {
    if (!line.contains("loss")) continue;
    const bool saved_before = line.at("step") > 0;
    EXPECT_EQ(line.at("checkpoint_blocked_ms") > 0, saved_before) << line;
  }
  for (const int64_t step : {3, 4, 5, 6}) EXPECT_TRUE(has_checkpoint(waiting, step)) << step;
  EXPECT_FALSE(has_checkpoint(waiting, 2));
}

TEST_F(TrainingLoop, SaveBehindHoldsTheStateOfItsStep) {
  const std::vector<std::string> common = {"checkpoint.every=3", "optimizer.decay=constant"};
  const config::RunConfig behind = config("behind", common);
  train(behind);
  std::vector<std::string> settings = common;
  settings.insert(settings.end(), {"train.steps=3", "checkpoint.async=false"});
  const config::RunConfig waiting = config("waiting", settings);
  train(waiting);
  ASSERT_TRUE(has_checkpoint(behind, 3));
  EXPECT_TRUE(file_of(behind, 3) == file_of(waiting, 3));
}

TEST_F(TrainingLoop, MirrorStandsInForALostDirectory) {
  const std::vector<std::string> mirrored = {
      base::text("checkpoint.mirror='", (directory_ / "mirror").string(), "'"), "optimizer.decay=constant"};
  const std::vector<base::Json> whole = train(config("whole", {"optimizer.decay=constant"}));
  std::vector<std::string> half = mirrored;
  half.emplace_back("train.steps=3");
  const config::RunConfig parts = config("parts", half);
  train(parts);
  std::filesystem::remove_all(parts.log.dir / "checkpoints");
  EXPECT_THROW(train(config("parts", mirrored)), base::InputError);  // without resume: another run's
  const std::vector<base::Json> lines = train(config("parts", mirrored), "auto");
  ASSERT_EQ(lines.size(), whole.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].value("loss", base::Json()), whole[i].value("loss", base::Json()));
  }
}

TEST_F(TrainingLoop, ResumeWithNothingLeftToDoRemovesWhatAKillLeft) {
  const std::filesystem::path mirror = directory_ / "mirror";
  const std::vector<std::string> settings = {base::text("checkpoint.mirror='", mirror.string(), "'")};
  const config::RunConfig done = config("done", settings);
  train(done);
  for (const std::filesystem::path& place : {done.log.dir / "checkpoints", mirror}) {
    std::filesystem::create_directories(place / "step-1");
    base::write_file_atomically(place / "step-1" / "rank-0000.safetensors", "without a manifest");
  }
  train(done, "auto");
  EXPECT_FALSE(std::filesystem::exists(done.log.dir / "checkpoints" / "step-1"));
  EXPECT_FALSE(std::filesystem::exists(mirror / "step-1"));
  EXPECT_TRUE(has_checkpoint(done, 6));
}

TEST_F(TrainingLoop, SaveThatFailsEndsTheRun) {
  const config::RunConfig blocked = config("blocked");
  std::filesystem::create_directories(blocked.log.dir);
  base::write_file_atomically(blocked.log.dir / "checkpoints", "a file where the directory belongs");
  EXPECT_THROW(train(blocked), base::RunError);
  EXPECT_LT(metrics(blocked).size(), 6U);
}

TEST_F(TrainingLoop, TokensWithoutRowsAreRefusedBeforeTheFirstStep) {
  for (const std::string corpus : {"corpus", "held"}) {
    write(corpus, 2, 1);
    EXPECT_THROW(train(config("broken", {"train.steps=40", "checkpoint.every=0"})), base::InputError)
        << corpus;
    write(corpus, 40);
  }
  EXPECT_FALSE(std::filesystem::exists(config("broken").log.dir / "metrics.jsonl"));
}

TEST_F(TrainingLoop, DryRunDescribesTheFirstStepAndWritesNothing) {
  const config::RunConfig dry = config("dry");
  run::RunOptions options{.config = dry, .dry_run = true};
  EXPECT_NE(Trainer(options).describe_first_step().find("tp1"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dry.log.dir / "metrics.jsonl"));
}

}  // namespace
}  // namespace sluice::train

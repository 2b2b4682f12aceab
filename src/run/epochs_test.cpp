#include "run/epochs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config_file.h"
#include "corpus/indexed.h"
#include "corpus/temporary_directory.h"
#include "session/data.h"

namespace sluice::run {
namespace {

class Epochs : public testing::Test {
 protected:
  Epochs() {
    write("odd", {7, 30, 2, 1, 11, 45, 9, 9, 23, 14, 5});
    write("even", {20, 20, 20, 20});
  }

  void write(const std::string& name, const std::vector<int>& lengths) {
    corpus::IndexedWriter writer(directory_ / name, {});
    for (const int length : lengths) writer.add(std::vector<int32_t>(static_cast<size_t>(length), 3));
    writer.commit();
  }

  std::string corpora(const std::string& pairs) const {
    std::string all = "data.train=[";
    for (const std::string& name : base::split(pairs, ','))
      all += base::text("['", (directory_ / name).string(), "', 1.0],");
    return all + "]";
  }

  config::RunConfig config(std::vector<std::string> settings) const {
    config::RunConfig config = config::parse_config(R"(
      [model]
      layers = 1
      hidden = 8
      heads = 1
      ffn_hidden = 8
      vocab = 64
      [data]
      context_length = 32
      tokens_per_step = 48
      )",
                                                    "the test", settings);
    config::resolve_model(config);
    return config;
  }

  corpus::TemporaryDirectory directory_;
};

// Counts the steps by drawing every batch.
TEST_F(Epochs, EndWithTheStepThatDrawsThePassesLastToken) {
  for (const char* overflow : {"truncate", "split", "drop"}) {
    for (const double epochs : {0.3, 1.0, 2.0, 3.7}) {
      const config::RunConfig config =
          this->config({corpora("odd"), base::text("train.epochs=", epochs),
                        base::text("data.overflow='", overflow, "'"), "data.seed=5"});
      const session::Data data = session::open_data(config);
      int64_t pass = 0;
      for (const int64_t length : data.phases.front().sequence_lengths()) pass += length;
      const int64_t steps = steps_of_epochs(config);
      session::PhasedSampler sampler = data.sampler();
      int64_t before_last = 0;
      for (int64_t step = 0; step + 1 < steps; ++step) before_last += sampler.next().tokens;
      EXPECT_LT(static_cast<double>(before_last), epochs * static_cast<double>(pass))
          << overflow << " " << epochs;
      EXPECT_GE(static_cast<double>(before_last + sampler.next().tokens), epochs * static_cast<double>(pass))
          << overflow;
    }
  }
}

TEST_F(Epochs, CountHeldOutDocumentsOutAndAllCorporaIn) {
  EXPECT_EQ(steps_of_epochs(config({corpora("even"), "train.epochs=1"})), 2);
  EXPECT_EQ(steps_of_epochs(config({corpora("even,even"), "train.epochs=1"})), 4);
  EXPECT_EQ(steps_of_epochs(config({corpora("even"), "train.epochs=0.001"})), 1);
  const int64_t all = steps_of_epochs(config({corpora("odd"), "train.epochs=100"}));
  EXPECT_LT(steps_of_epochs(config({corpora("odd"), "train.epochs=100", "data.validation_fraction=0.5"})),
            all);
}

TEST_F(Epochs, OfRolloutsAreOfPrompts) {
  const std::vector<std::string> rl = {corpora("even"), "train.epochs=3", "rl.algorithm='grpo'",
                                       "rl.prompts_per_step=5", "rl.updates_per_rollout=2"};
  EXPECT_EQ(steps_of_epochs(config(rl)), 6);  // 12 prompts in 3 rollouts
}

TEST_F(Epochs, ResolvingSetsTheStepsAndLeavesThemWithout) {
  config::RunConfig with = config({corpora("even"), "train.epochs=2", "train.steps=77"});
  resolve_epochs(with);
  EXPECT_EQ(with.train.steps, 4);
  config::RunConfig without = config({corpora("even"), "train.steps=77"});
  resolve_epochs(without);
  EXPECT_EQ(without.train.steps, 77);
}

void expect_refusal(const config::RunConfig& config, const std::string& part) {
  try {
    static_cast<void>(steps_of_epochs(config));
    ADD_FAILURE() << "no refusal that says " << part;
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("train.steps"), std::string::npos) << error.what();
  }
}

TEST_F(Epochs, WhereNobodyKnowsTheStepsAreRefused) {
  expect_refusal(config({corpora("even"), "train.epochs=1", "data.batches='list.jsonl'"}), "data.batches");
  expect_refusal(config({corpora("even"), "train.epochs=1", "rl.algorithm='dapo'"}), "rl.dynamic_sampling");
  config::RunConfig phases = config({corpora("even"), "train.epochs=1"});
  phases.phases.push_back({.step = 5, .data = phases.data});
  expect_refusal(phases, "[[phase]]");
}

}  // namespace
}  // namespace sluice::run

// Shared by this module's tests: a training run of one rank in this process, on small corpora without masks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config_file.h"
#include "corpus/indexed.h"
#include "corpus/temporary_directory.h"
#include "train/trainer.h"

namespace sluice::train {

inline constexpr int kVocabulary = 64;

class TrainingLoop : public testing::Test {
 protected:
  TrainingLoop() {
    write("corpus", 40);
    write("held", 3);
  }
  ~TrainingLoop() override { base::configure_log({}); }

  // Documents of 20 tokens, `broken` of them behind the others with one that the model does not know.
  void write(const std::string& name, int documents, int broken = 0) {
    corpus::IndexedWriter writer(directory_ / name, {});
    for (int document = 0; document < documents + broken; ++document) {
      std::vector<int32_t> tokens;
      for (int i = 0; i < 20; ++i) tokens.push_back((7 * document + 3 * i) % kVocabulary);
      if (document >= documents) tokens[5] = kVocabulary;
      writer.add(tokens);
    }
    writer.commit();
  }

  config::RunConfig config(const std::string& run, const std::vector<std::string>& settings = {}) {
    std::vector<std::string> all = {
        base::text("log.dir='", (directory_ / run).string(), "'"),
        base::text("data.train=[['", (directory_ / "corpus").string(), "', 1.0]]"),
        base::text("data.validation=['", (directory_ / "held").string(), "']")};
    all.insert(all.end(), settings.begin(), settings.end());
    return config::parse_config(R"(
      [model]
      layers = 2
      hidden = 16
      heads = 2
      kv_heads = 2
      ffn_hidden = 24
      vocab = 64
      [data]
      context_length = 32
      tokens_per_step = 40
      [train]
      steps = 6
      eval_every = 3
      threads = 1
      dtype = "float64"
      device = "cpu"
      [parallel]
      calibration = "analytic"
      [memory]
      device_gib = 1.0
      margin_gib = 0.0
      [checkpoint]
      every = 2
      [log]
      tensorboard = false
      )",
                                "the test", all);
  }

  // The run's metrics.
  std::vector<base::Json> train(const config::RunConfig& config, const std::string& resume = "") {
    run::RunOptions options{.config = config, .resume = resume};
    options.end_process = [](const base::Error& error) { throw base::RunError(error.what()); };
    Trainer(options).run();
    return metrics(config);
  }

  static std::vector<base::Json> metrics(const config::RunConfig& config) {
    std::vector<base::Json> lines;
    for (const std::string& line : base::split(base::read_file(config.log.dir / "metrics.jsonl"), '\n')) {
      if (!line.empty()) lines.push_back(base::Json::parse(line));
    }
    return lines;
  }

  static bool has_checkpoint(const config::RunConfig& config, int64_t step) {
    return std::filesystem::exists(config.log.dir / "checkpoints" / base::text("step-", step) /
                                   "manifest.json");
  }

  static std::string file_of(const config::RunConfig& config, int64_t step) {
    return base::read_file(config.log.dir / "checkpoints" / base::text("step-", step) /
                           "rank-0000.safetensors");
  }

  // The lines of evaluations.
  static std::vector<base::Json> evaluations(const config::RunConfig& config) {
    std::vector<base::Json> lines = metrics(config);
    std::erase_if(lines, [](const base::Json& line) { return line.contains("loss"); });
    return lines;
  }

  // Everything that is logged from now on.
  void log_to_file() { base::configure_log({.file = directory_ / "log"}); }
  std::string logged() const { return base::read_file(directory_ / "log"); }

  corpus::TemporaryDirectory directory_;
};

}  // namespace sluice::train

// Shared by the tests of runs that generate: a run of one rank in this process, with corpora of prompts and
// answers, a tokenizer beside them, and a model whose next token a test may choose.
#pragma once

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config_file.h"
#include "corpus/indexed.h"
#include "corpus/sentencepiece_tokenizer.h"
#include "corpus/temporary_directory.h"
#include "model/roles.h"
#include "run/run_context.h"

namespace sluice::learn {

inline constexpr int64_t kSmallVocabulary = 300;

// A run that was opened, and leaves its place when it ends.
class OpenRun {
 public:
  explicit OpenRun(const config::RunConfig& config) : context_(options_of(config)) {
    context_.peers().guard([this] { context_.open(); });
  }
  ~OpenRun() {
    context_.peers().leave();
    context_.peers().release_directory();
  }
  run::RunContext& operator*() { return context_; }
  run::RunContext* operator->() { return &context_; }

  static run::RunOptions options_of(const config::RunConfig& config) {
    run::RunOptions options{.config = config};
    options.tools.scripts = std::filesystem::path(__FILE__).parent_path() / "../../tools";
    options.end_process = [](const base::Error& error) { throw base::RunError(error.what()); };
    return options;
  }

 private:
  run::RunContext context_;
};

class SmallRuns : public testing::Test {
 protected:
  struct Document {
    std::string prompt, answer;
  };

  SmallRuns() { base::write_file_atomically(directory_ / "tokenizer.model", model()); }
  ~SmallRuns() override { base::configure_log({}); }

  // Prompts are not learnt; answers are, with the end token behind them. An empty prompt makes the document
  // begin with its answer.
  void write(const std::string& name, const std::vector<Document>& documents) {
    corpus::IndexedWriter writer(directory_ / name, {.mask = corpus::MaskFile::kWrite});
    for (const Document& document : documents) {
      std::vector<int32_t> tokens = tokenizer().encode(document.prompt);
      std::vector<uint8_t> mask(tokens.size(), 0);
      for (const int32_t id : tokenizer().encode(document.answer)) tokens.push_back(id);
      tokens.push_back(tokenizer().end_id());
      mask.resize(tokens.size(), 1);
      writer.add(tokens, mask);
    }
    writer.commit();
  }

  // A model of random weights, on the corpus "corpus". `settings` add to these keys.
  config::RunConfig config(const std::vector<std::string>& settings = {}, const std::string& run = "run") {
    std::vector<std::string> all = {base::text("log.dir='", (directory_ / run).string(), "'"),
                                    base::text("data.train=[['", path("corpus"), "', 1.0]]")};
    all.insert(all.end(), settings.begin(), settings.end());
    return config::parse_config(R"(
      [model]
      layers = 1
      hidden = 16
      heads = 2
      kv_heads = 2
      ffn_hidden = 24
      vocab = 300
      [data]
      context_length = 32
      tokens_per_step = 64
      [train]
      steps = 4
      threads = 1
      dtype = "float64"
      device = "cpu"
      [optimizer]
      lr = 1e-2
      warmup_steps = 0
      decay = "constant"
      [parallel]
      calibration = "analytic"
      [memory]
      device_gib = 1.0
      margin_gib = 0.0
      [log]
      tensorboard = false
      )",
                                "the test", all);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  // Keys of a model for say(), which has a row for each token.
  static std::vector<std::string> wide(std::vector<std::string> settings) {
    settings.insert(settings.end(), {"model.hidden=300", "model.ffn_hidden=4"});
    return settings;
  }

  // Replaces a wide model's weights: behind each token come these texts' tokens, all alike likely.
  static void say(run::RunContext& run, const std::map<int32_t, std::vector<int32_t>>& next) {
    runtime::ParameterStore& store = run.engine().store();
    for (const model::Bucket& bucket : store.table().buckets) {
      const at::Tensor flat = store.owner(bucket.index).master;
      for (const model::Parameter& p : bucket.parameters) {
        const at::Tensor values = flat.narrow(0, p.offset, p.size()).fill_(p.one_dimensional() ? 1.0 : 0.0);
        if (p.role == model::roles::kEmbedding) values.view({p.rows, p.columns}).fill_diagonal_(1.0);
        if (p.role != model::roles::kHead) continue;
        for (const auto& [token, successors] : next) {
          for (const int32_t successor : successors)
            values.view({p.rows, p.columns}).select(0, successor).select(0, token).fill_(4.0);
        }
      }
    }
    store.refresh_compute_copies();
  }

  static int32_t id(const std::string& letter) { return tokenizer().encode(letter).front(); }
  static std::vector<int32_t> ids(const std::string& text) { return tokenizer().encode(text); }
  static int32_t end() { return tokenizer().end_id(); }
  static const corpus::Tokenizer& tokenizer() {
    static const corpus::SentencePieceTokenizer made(model(), "the test's", {.threads = 1});
    return made;
  }

  // Everything that is logged from now on.
  void log_to_file() { base::configure_log({.file = directory_ / "log"}); }
  std::string logged() const { return base::read_file(directory_ / "log"); }

  corpus::TemporaryDirectory directory_;

 private:
  static const std::string& model() {
    static const std::string trained = [] {
      corpus::SentencePieceTrainer trainer(100'000);
      for (int i = 0; i < 200; ++i) trainer.add(base::text("q", i, "=", 7 * i, "? a b c d e f g \u00e9\n"));
      return trainer.train(kSmallVocabulary);
    }();
    return trained;
  }
};

}  // namespace sluice::learn

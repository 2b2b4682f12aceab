// Shared by this module's tests: an engine of a chained model (test_model.h), and requests to it in memory.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "serve/answer.h"
#include "serve/test_model.h"
#include "serve/test_reply.h"

namespace sluice::serve {

inline constexpr int64_t kTestKvBlocks = 64;

struct ServingOptions {
  std::map<int64_t, int64_t> next;    // of the model's chain
  std::vector<std::string> adapters;  // their names
  int64_t context_length = 200;
  int64_t max_queued_requests = 4096;
  int64_t max_queued_requests_of_client = 2048;
};

inline EngineOptions engine_options(const ServingOptions& options = {}) {
  return {.scheduler = {.kv_blocks = kTestKvBlocks, .max_num_seqs = 8},
          .max_queued_requests = options.max_queued_requests,
          .max_queued_requests_of_client = options.max_queued_requests_of_client};
}

// Holds an engine between two steps until it is let go.
class Hold {
 public:
  explicit Hold(Engine& engine)
      : thread_([this, &engine] {
          engine.between_steps(
              [this] {
                held_.set_value();
                go_.get_future().wait();
              },
              "");
        }) {
    held_.get_future().wait();
  }
  ~Hold() { release(); }
  void release() {
    if (!thread_.joinable()) return;
    go_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> held_, go_;
  std::thread thread_;
};

class Serving {
 public:
  explicit Serving(const ServingOptions& options = {}, const ByteTokenizer& tokenizer = kTokenizer)
      : model_(options.next, std::ssize(options.adapters)),
        decoder_(model_.shard(), kTestKvBlocks, /*most_texts=*/8),
        reader_{&tokenizer, "mine",          kVocabulary, options.context_length, tool_format_named("hermes"),
                {},         options.adapters},
        engine_(std::make_unique<Engine>(decoder_, engine_options(options))),
        rounds_(*pool_, tokenizer),
        context_{*engine_,
                 *pool_,
                 rounds_,
                 reader_,
                 options.context_length,
                 {kEndToken},
                 [] { return "fp"; },
                 [this](const std::string& fault) { fault_ = fault; }} {}
  // The engine calls answers, which post to the pool, whose threads use all else.
  ~Serving() {
    engine_->stop("the test has ended");
    pool_.reset();
  }

  std::shared_ptr<MemoryReply> ask(const base::Json& body, Endpoint endpoint = Endpoint::kCompletions,
                                   const std::string& client = "a") {
    return ask(body, endpoint, client, std::make_shared<MemoryReply>());
  }
  std::shared_ptr<MemoryReply> ask(const base::Json& body, Endpoint endpoint, const std::string& client,
                                   std::shared_ptr<MemoryReply> reply) {
    std::make_shared<Answer>(context_, client, reply,
                             AnswerHead{.id = "cmpl-1", .model = "mine", .created = 5})
        ->begin(body.dump(), endpoint, /*seed=*/7);
    return reply;
  }
  // The text of a completion's only choice.
  std::string complete(base::Json body) {
    return ask(body)->json().at("choices").at(0).at("text").get<std::string>();
  }

  Engine& engine() { return *engine_; }
  ChainedModel& model() { return model_; }
  const std::string& fault() const { return fault_; }  // that a request had by the server's fault

 private:
  static inline const ByteTokenizer kTokenizer;

  ChainedModel model_;
  generate::Decoder decoder_;
  const RequestReader reader_;
  std::string fault_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<FairPool> pool_ = std::make_unique<FairPool>(2);
  Rounds rounds_;
  AnswerContext context_;
};

}  // namespace sluice::serve

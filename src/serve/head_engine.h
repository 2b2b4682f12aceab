// Computes a head's numbers for texts of many clients. One thread owns the model; other
// threads wait for their requests. Texts of different requests are packed into one batch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/head_followers.h"
#include "serve/pending_texts.h"
#include "serve/request_engine.h"
#include "serve/text_queue.h"

namespace sluice::serve {

struct HeadEngineOptions {
  int64_t max_num_batched_tokens = 2048;  // per batch, unless one text has more
  int64_t max_queued_texts = 4096;        // waiting texts
  int64_t max_queued_texts_of_client = 2048;
  // The model's ranks, of which this one is the first; null: it is alone. Borrowed.
  comm::Communicator* followers = nullptr;
};

class HeadEngine final : public RequestEngine {
 public:
  // Computes the numbers of each text of a batch. Collective over the followers, who get the same texts.
  using Compute = std::function<std::vector<std::vector<double>>(const TokenTexts&)>;

  HeadEngine(Compute compute, const HeadEngineOptions& options);
  // Ends all requests, as stop() does.
  ~HeadEngine() override;

  // Null: the queue is full, in all or for this client. Unavailable once
  // the engine has ended. REQUIRES: one or more texts that compute() takes.
  std::shared_ptr<PendingTexts> add_request(const std::string& client,
                                            std::vector<std::vector<int32_t>> texts,
                                            std::function<void()> done);

  // Requests that have only some of their numbers begin again: a response comes from one model.
  bool between_steps(const std::function<void()>& action, const std::string& others) override;
  void stop(const std::string& why) override;
  EngineStats stats() const override;
  std::string fault() const override;

 private:
  void run();
  bool wait_until_asked();
  void act();
  std::vector<QueuedText> take_batch();
  void compute(const std::vector<QueuedText>& batch);
  void end_all(const std::exception_ptr& why);

  const Compute compute_;
  const HeadEngineOptions options_;
  const HeadFollowers followers_;
  mutable std::mutex mutex_;
  std::condition_variable asked_, acted_;
  TextQueue queue_;
  std::vector<std::shared_ptr<PendingTexts>> in_batch_;  // requests with texts in the current batch
  EngineStats stats_;
  std::string fault_;
  std::string stopped_ = "the server was stopped";
  bool stopping_ = false;
  bool ended_ = false;
  const std::function<void()>* action_ = nullptr;  // between_steps()' argument
  std::string others_take_;
  std::exception_ptr action_fault_;
  std::thread thread_;
};

}  // namespace sluice::serve

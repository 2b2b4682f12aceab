// One request for a head's numbers: read, computed, and answered. No thread waits for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "serve/fair_pool.h"
#include "serve/head_api.h"
#include "serve/head_engine.h"
#include "serve/http_server.h"

namespace sluice::serve {

// The context shared by such answers. All of it outlives them.
struct HeadAnswerContext {
  HeadEngine& engine;
  FairPool& pool;
  HeadRequestReader reader;
  std::function<std::string()> fingerprint;              // the current parameters'
  std::function<void(const std::string& fault)> failed;  // called if a request fails by the server's fault
};

class HeadAnswer : public std::enable_shared_from_this<HeadAnswer> {
 public:
  HeadAnswer(HeadAnswerContext& context, std::string client, std::shared_ptr<Reply> reply, AnswerHead about)
      : context_(context), client_(std::move(client)), reply_(std::move(reply)), about_(std::move(about)) {}
  ~HeadAnswer();

  // Reads the request, on a thread of the pool, and has its texts computed.
  void begin(const std::string& body, HeadEndpoint endpoint);

 private:
  void changed();
  void finish();

  HeadAnswerContext& context_;
  const std::string client_;
  const std::shared_ptr<Reply> reply_;
  AnswerHead about_;
  HeadRequest request_;
  std::shared_ptr<PendingTexts> pending_;
  std::atomic<bool> computed_ = false;
  std::atomic<bool> done_ = false;
};

}  // namespace sluice::serve

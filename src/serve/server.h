// An endpoint that speaks OpenAI's language to many askers at once: completions, chat completions, models,
// /health and Prometheus' /metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "corpus/tokenizer.h"
#include "serve/engine.h"

namespace sluice::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;             // 0: any
  std::string key;             // that askers must know; empty: nobody is asked for one
  std::string model;           // as it is called
  int64_t context_length = 0;  // tokens of prompt and answer together
  int64_t vocabulary = 0;
  std::vector<int64_t> end_tokens;
};

class Server {
 public:
  // Engine and tokenizer must outlive it. InputError where the address cannot be had.
  Server(Engine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options);
  ~Server();

  int port() const;
  // Serves until stop().
  void run();
  // From any thread, also before run().
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve

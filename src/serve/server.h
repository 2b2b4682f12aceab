// An endpoint that speaks OpenAI's language to many clients at once: completions, chat completions, models,
// /health and Prometheus' /metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "corpus/tokenizer.h"
#include "serve/api.h"
#include "serve/engine.h"
#include "serve/http_server.h"

namespace sluice::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                // 0: any
  std::vector<std::string> keys;  // one of which clients must send; none: nobody is asked for one
  std::string model;              // its name
  std::string fingerprint;        // of its parameters
  int64_t context_length = 0;     // tokens of prompt and answer together
  int64_t vocabulary = 0;
  std::vector<int64_t> end_tokens;
  const ToolFormat* tool_format = nullptr;  // null: requests with tools are refused
  HttpLimits http;
  RequestLimits requests;
  int threads = 4;  // that read requests and write answers
};

class Server {
 public:
  // Engine and tokenizer must outlive it; it stops the engine when it ends. InputError where the address
  // cannot be had.
  Server(Engine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options);
  ~Server();

  int port() const;
  // Serves until stop(), or until all clients have their answers after drain().
  void run();
  // From any thread: takes no new request.
  void drain();
  // From any thread, also before run().
  void stop();
  // From any thread: other parameters have taken the place of the model's.
  void set_fingerprint(std::string fingerprint);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve

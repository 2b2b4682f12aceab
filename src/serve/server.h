// An OpenAI-compatible endpoint for many clients: completions and chat
// completions, or for a model that ends in a head embeddings, ranks,
// scores and classes. Also models, /health and Prometheus' /metrics.
#pragma once

#include <memory>
#include <string>

#include "corpus/tokenizer.h"
#include "serve/engine.h"
#include "serve/head_engine.h"
#include "serve/server_options.h"

namespace sluice::serve {

class Server {
 public:
  // Engine and tokenizer must outlive the server, which stops the
  // engine when it ends. InputError if the address is not available.
  Server(Engine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options);
  Server(HeadEngine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options);
  ~Server();

  int port() const;
  // Serves until stop(), or until all clients have their answers after drain().
  void run();
  // From any thread: accepts no new request.
  void drain();
  // From any thread, also before run().
  void stop();
  // From any thread: announces that the model's parameters were replaced.
  void set_fingerprint(std::string fingerprint);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve

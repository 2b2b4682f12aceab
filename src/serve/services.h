// The services behind a server's POST requests: text from a
// model that generates, or the numbers of a model's head.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "corpus/tokenizer.h"
#include "serve/engine.h"
#include "serve/fair_pool.h"
#include "serve/head_engine.h"
#include "serve/http_server.h"
#include "serve/server_options.h"

namespace sluice::serve {

// All of it outlives the service.
struct ServiceContext {
  FairPool& pool;
  const corpus::Tokenizer& tokenizer;
  const ServerOptions& options;
  std::function<std::string()> fingerprint;              // the current parameters'
  std::function<void(const std::string& fault)> failed;  // called if a request fails by the server's fault
};

class Service {
 public:
  virtual ~Service() = default;

  // The refusal of a path that the service does not answer; nothing: it answers.
  virtual std::optional<Response> refusal(const std::string& path) const = 0;
  // Sends the response, now or later. `number`: the request's, since the
  // server started. `seed`: for sampling. REQUIRES: no refusal() of its path.
  virtual void answer(HttpRequest request, const std::string& client, std::shared_ptr<Reply> reply,
                      uint64_t number, uint64_t seed) = 0;
};

std::unique_ptr<Service> generation_service(Engine& engine, const ServiceContext& context);
std::unique_ptr<Service> head_service(HeadEngine& engine, const ServiceContext& context);

}  // namespace sluice::serve

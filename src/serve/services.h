// The services that a server's POST requests ask for: text of a model that generates, or the numbers of a
// model's head.
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
  std::function<std::string()> fingerprint;  // of the parameters, now
  std::function<void(const std::string& fault)>
      failed;  // hears of requests that fail by no fault of their own
};

class Service {
 public:
  virtual ~Service() = default;

  // Why nothing is answered at a path; nothing: it is.
  virtual std::optional<Response> refusal(const std::string& path) const = 0;
  // Sends the response, now or later. `number`: of the request, in this life of the server; `seed`: of draws.
  // REQUIRES: no refusal() of its path.
  virtual void answer(HttpRequest request, const std::string& client, std::shared_ptr<Reply> reply,
                      uint64_t number, uint64_t seed) = 0;
};

std::unique_ptr<Service> generation_service(Engine& engine, const ServiceContext& context);
std::unique_ptr<Service> head_service(HeadEngine& engine, const ServiceContext& context);

}  // namespace sluice::serve

// The options of a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/api.h"
#include "serve/head_api.h"
#include "serve/http_server.h"

namespace sluice::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                    // 0: any
  std::vector<std::string> keys;      // clients must send one of them; none: no key is needed
  std::string model;                  // its name
  std::vector<std::string> adapters;  // names of tuned models served side by side, by their indices
  std::string fingerprint;            // its parameters'
  int64_t context_length = 0;         // tokens of prompt and answer together
  int64_t vocabulary = 0;
  std::vector<int64_t> end_tokens;
  const ToolFormat* tool_format = nullptr;  // null: requests with tools are refused
  ServedHead head;                          // for a model that ends in a head
  // Joins a query and a document to one text, for heads of one number.
  std::string pair_template = "{query}\n{document}";
  HttpLimits http;
  RequestLimits requests;
  int threads = 4;  // for reading requests and writing answers
};

}  // namespace sluice::serve

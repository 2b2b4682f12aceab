// OpenAI's completions and chat completions as JSON (platform.openai.com/docs/api-reference): requests in,
// responses out. Nothing here generates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/tokenizer.h"
#include "generate/generator.h"
#include "http/fields.h"
#include "serve/tool_calls.h"

namespace sluice::serve {

enum class Endpoint : uint8_t { kCompletions, kChat };

// A request of either endpoint.
struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<std::vector<int64_t>> prompts;  // token ids
  generate::Sampling sampling;
  std::optional<int64_t> max_tokens;
  int samples = 1;  // for each prompt
  std::vector<std::string> stops;
  std::vector<int64_t> stop_tokens;
  bool stream = false;
  bool stream_usage = false;  // a last chunk has the usage
  bool echo = false;          // the response repeats the prompt
  bool logprobs = false;
  int64_t alternatives = 0;         // likeliest tokens to report at each position, with logprobs
  std::vector<std::string> tools;   // names that may be called; none: the text is not searched for calls
  bool parallel_tool_calls = true;  // more than one call in a response
  int adapter = -1;                 // index in the reader's adapters; -1: the model itself
};

struct RequestLimits {
  int64_t json_entries = 524'288;  // values, keys and commas in a body
  int64_t prompts = 2048;          // prompts times samples
  int64_t stops = 64;              // stop strings, and as many stop tokens
  int64_t stop_bytes = 1024;       // per stop string
  int64_t logit_biases = 1024;
  int64_t numbers = int64_t{4} << 20;  // in all embeddings of a response
};

// Reads the requests of a server.
struct RequestReader {
  const corpus::Tokenizer* tokenizer = nullptr;
  std::string model;  // the name that requests may give
  int64_t vocabulary = 0;
  int64_t context_length = 0;
  const ToolFormat* tool_format = nullptr;  // null: requests with tools are refused
  RequestLimits limits = {};
  std::vector<std::string> adapters = {};  // names of LoRA adapters that requests may give instead

  // InputError or FieldError if a field is wrong, or unknown and able to change the
  // response. UnknownModel. `seed`: the seed of sampling if the request has none.
  CompletionRequest read(const std::string& body, Endpoint endpoint, uint64_t seed) const;
};

// One output of a request, as far as it is generated.
struct Choice {
  int index = 0;
  std::string text;  // without the stop
  const generate::Output* output = nullptr;
  const std::vector<int64_t>* prompt = nullptr;
  bool finished = false;
  std::vector<ToolCall> calls = {};
};

// Shared by all chunks of a response.
struct AnswerHead {
  std::string id;
  std::string model;
  std::string fingerprint;  // the parameters'
  int64_t created = 0;
};

// The whole response.
base::Json response_json(const CompletionRequest& request, const AnswerHead& head,
                         const std::vector<Choice>& choices, const corpus::Tokenizer& tokenizer);
// A chunk of a stream; `choice.text` is the new text.
base::Json chunk_json(const CompletionRequest& request, const AnswerHead& head, const Choice& choice,
                      bool first);
// The last chunk, if the client wants the usage.
base::Json usage_chunk_json(const CompletionRequest& request, const AnswerHead& head,
                            int64_t completion_tokens);

// `type` is OpenAI's: invalid_request_error, server_error. Empty `field` and `code` are null.
base::Json error_json(const std::string& message, const std::string& type, const std::string& field = "",
                      const std::string& code = "");

}  // namespace sluice::serve

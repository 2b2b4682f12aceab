// OpenAI's requests and answers as JSON, without what answers them: completions and chat completions
// (platform.openai.com/docs/api-reference).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/continuation.h"
#include "corpus/tokenizer.h"
#include "generate/generator.h"

namespace sluice::serve {

enum class Endpoint : uint8_t { kCompletions, kChat };

// What is asked for, whichever way.
struct Asked {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<std::vector<int64_t>> prompts;  // token ids
  generate::Sampling sampling;
  std::optional<int64_t> most_tokens;
  int samples = 1;  // of each prompt
  std::vector<std::string> stops;
  bool stream = false;
  bool echo = false;         // the prompt is said too
  bool logprobs = false;     // of what is said
  int64_t alternatives = 0;  // likeliest tokens that are told of each place, with logprobs
};

// InputError naming the field that is wrong, or that is not known and would change what is said. `seed`: of
// draws, where the request has none.
Asked read_request(const std::string& body, Endpoint endpoint, const corpus::Tokenizer& tokenizer,
                   int64_t vocabulary, uint64_t seed);

// One text of a request, as far as it is said.
struct Choice {
  int index = 0;
  std::string text;  // without what stops it
  const generate::Said* said = nullptr;
  const std::vector<int64_t>* prompt = nullptr;
  bool finished = false;
};

// The whole answer.
base::Json answer_json(const Asked& asked, const std::string& id, const std::string& model, int64_t created,
                       const std::vector<Choice>& choices, const corpus::Tokenizer& tokenizer);
// A piece of a stream: `choice.text` is what is new of it.
base::Json chunk_json(const Asked& asked, const std::string& id, const std::string& model, int64_t created,
                      const Choice& choice, bool first);
base::Json error_json(const std::string& message, const std::string& type);

// What of a text may be shown while it is said: nothing that a stop may begin with, no half of a letter.
class TextSoFar {
 public:
  TextSoFar(const corpus::Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
            const std::vector<std::string>& stops)
      : behind_(tokenizer, prompt), stops_(stops) {}
  // What is new of it since the last call.
  std::string more(const generate::Said& said, bool finished);

 private:
  corpus::Behind behind_;
  const std::vector<std::string>& stops_;
  size_t shown_ = 0;
};

// What ends a text behind the prompt: one of the stops stands in it. The tokenizer must outlive it.
std::function<bool(const generate::Said& said)> ends_at_stop(const corpus::Tokenizer& tokenizer,
                                                             const std::vector<int64_t>& prompt,
                                                             std::vector<std::string> stops);

// The text up to the first stop.
std::string cut_at_stop(const std::string& text, const std::vector<std::string>& stops);

}  // namespace sluice::serve

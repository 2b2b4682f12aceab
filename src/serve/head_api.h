// Requests and responses of models that end in a head, as JSON: OpenAI's embeddings;
// rerank in the format of Jina, Cohere and vLLM; vLLM's score, classify and pooling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/tokenizer.h"
#include "serve/api.h"

namespace sluice::serve {

enum class HeadEndpoint : uint8_t { kEmbeddings, kPooling, kClassify, kScore, kRerank };

// The endpoint at a path, with or without /v1 in front; nothing: there is none.
std::optional<HeadEndpoint> head_endpoint_of(std::string_view path);

// The properties of a model's head that its endpoints need.
struct ServedHead {
  enum class Output : uint8_t { kEmbedding, kNumbers };
  enum class Activation : uint8_t { kNone, kSigmoid, kSoftmax };

  Output output = Output::kEmbedding;
  int64_t width = 0;                // numbers per text
  std::vector<std::string> labels;  // the numbers' names
  Activation activation = Activation::kNone;

  // "ends in embeddings of 576 numbers"
  std::string description() const;
  // The reason why the head does not answer an endpoint, and what does; "": it answers.
  std::string refusal(HeadEndpoint endpoint) const;
};

struct HeadRequest {
  HeadEndpoint endpoint = HeadEndpoint::kEmbeddings;
  std::vector<std::vector<int32_t>> texts;  // token ids
  bool base64 = false;
  bool normalized = true;  // embeddings have length one
  std::optional<int64_t> dimensions;
  bool activated = true;  // numbers as probabilities
  // For scores and ranks. With embeddings the first texts are the queries: one, or as many as documents.
  int64_t queries = 0;
  std::vector<std::string> documents;
  std::optional<int64_t> top_n;
  bool return_documents = false;

  int64_t prompt_tokens() const;
};

// Reads the requests of a server.
struct HeadRequestReader {
  const corpus::Tokenizer* tokenizer = nullptr;
  std::string model;  // the name that requests may give
  int64_t vocabulary = 0;
  int64_t context_length = 0;
  ServedHead head;
  std::string pair_template;  // joins a query and a document to one text, for heads of one number
  RequestLimits limits;

  // InputError. FieldError if a field is wrong, or unknown and able to change
  // the response. UnknownModel. REQUIRES: an endpoint that the head answers.
  HeadRequest read(const std::string& body, HeadEndpoint endpoint) const;
};

// InputError unless the template has {query} and {document} once each.
void require_pair_template(const std::string& pair_template);

// The body of the response. `numbers`: for each of the request's texts.
std::string head_response_body(const HeadRequest& request, const AnswerHead& about, const ServedHead& head,
                               const std::vector<std::vector<float>>& numbers);

}  // namespace sluice::serve

// Requests and responses of models that end in a head, as JSON: OpenAI's embeddings; rerank as Jina, Cohere
// and vLLM have it; vLLM's score, classify and pooling.
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

// A model's head, as its endpoints need to know it.
struct ServedHead {
  enum class Output : uint8_t { kEmbedding, kNumbers };
  enum class Activation : uint8_t { kNone, kSigmoid, kSoftmax };

  Output output = Output::kEmbedding;
  int64_t width = 0;                // numbers of a text
  std::vector<std::string> labels;  // of numbers
  Activation activation = Activation::kNone;

  // "ends in embeddings of 576 numbers"
  std::string description() const;
  // Why the head does not answer there, and what does; or "".
  std::string refusal(HeadEndpoint endpoint) const;
};

struct HeadRequest {
  HeadEndpoint endpoint = HeadEndpoint::kEmbeddings;
  std::vector<std::vector<int32_t>> texts;  // token ids
  bool base64 = false;
  bool normalized = true;  // embeddings have length one
  std::optional<int64_t> dimensions;
  bool activated = true;  // numbers as probabilities
  // For scores and ranks. Embeddings: the first texts are the queries, one or as many as there are others.
  int64_t queries = 0;
  std::vector<std::string> documents;
  std::optional<int64_t> top_n;
  bool return_documents = false;

  int64_t prompt_tokens() const;
};

// How requests of this server are read.
struct HeadRequestReader {
  const corpus::Tokenizer* tokenizer = nullptr;
  std::string model;  // the name that requests may give
  int64_t vocabulary = 0;
  int64_t context_length = 0;
  ServedHead head;
  std::string pair_template;  // a query and a document as one text, of heads of one number
  RequestLimits limits;

  // InputError, FieldError where a field is wrong, or not known and would change the response; UnknownModel.
  // REQUIRES: an endpoint that the head answers.
  HeadRequest read(const std::string& body, HeadEndpoint endpoint) const;
};

// InputError unless it has {query} and {document}, once each.
void require_pair_template(const std::string& pair_template);

// The body of the response. `numbers`: of each of the request's texts.
std::string head_response_body(const HeadRequest& request, const AnswerHead& about, const ServedHead& head,
                               const std::vector<std::vector<float>>& numbers);

}  // namespace sluice::serve

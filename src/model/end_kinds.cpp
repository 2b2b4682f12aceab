#include "model/end_kinds.h"

#include "base/text.h"
#include "model/family.h"

namespace sluice::model {
namespace {

std::string vocabulary_fault(int64_t vocab, int tp) {
  return tp > vocab ? base::text("tp ", tp, " is above vocab ", vocab) : "";
}

std::vector<Parameter> embedding_parameters(const Shape& shape) {
  std::vector<Parameter> parameters = {matrix(EmbeddingKind::kTable, {"model.embed_tokens.weight"},
                                              shape.hidden, {{shape.vocab, shape.vocab}})};
  name_tensors(shape, parameters.front());
  return parameters;
}

std::vector<Parameter> head_parameters(const Shape& shape) {
  std::vector<Parameter> parameters = {
      norm(HeadKind::kNorm, "model.norm.weight", shape.hidden, shape.norm_offset)};
  if (!shape.tie_embeddings) {
    parameters.push_back(
        matrix(HeadKind::kOutput, {"lm_head.weight"}, shape.hidden, {{shape.vocab, shape.vocab}}));
  }
  for (Parameter& parameter : parameters) name_tensors(shape, parameter);
  return parameters;
}

}  // namespace

EmbeddingKind::EmbeddingKind(const Shape& shape)
    : Kind(frozen_by(shape.frozen_embedding, embedding_parameters(shape))),
      hidden_(shape.hidden),
      vocab_(shape.vocab) {}

std::string EmbeddingKind::tp_fault(int tp) const { return vocabulary_fault(vocab_, tp); }

TokenWork EmbeddingKind::work() const { return {.elements = 2 * hidden_, .collectives = 1}; }

HeadKind::HeadKind(const Shape& shape)
    : Kind(frozen_by(shape.frozen_head, head_parameters(shape))),
      hidden_(shape.hidden),
      vocab_(shape.vocab),
      output_trained_(shape.tie_embeddings ? shape.frozen_embedding == 0 : parameters_.back().trained) {}

std::string HeadKind::tp_fault(int tp) const { return vocabulary_fault(vocab_, tp); }

// Logits, and cross-entropy that reads them for the maximum and the sum and rewrites them as gradients.
TokenWork HeadKind::work() const {
  return {.products = hidden_ * vocab_,
          .trained = output_trained_ ? hidden_ * vocab_ : 0,
          .elements = 4 * vocab_,
          .collectives = 2};
}

// Its input and the gradient of that; the norm's input and gradient, or a chunk's rows of both.
TokenBytes HeadKind::bytes(const Cut&, int64_t element_bytes) const {
  return {.forward = element_bytes * 4 * hidden_};
}

}  // namespace sluice::model

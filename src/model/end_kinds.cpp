#include "model/end_kinds.h"

#include "base/text.h"

namespace sluice::model {
namespace {

std::string vocabulary_fault(int64_t vocab, int tp) {
  return tp > vocab ? base::text("tp ", tp, " is above vocab ", vocab) : "";
}

}  // namespace

std::vector<Parameter> EmbeddingKind::parameters() const {
  return {matrix(kTable, {"model.embed_tokens.weight"}, hidden_, {{vocab_, vocab_}})};
}

std::string EmbeddingKind::tp_fault(int tp) const { return vocabulary_fault(vocab_, tp); }

TokenWork EmbeddingKind::work() const { return {.elements = 2 * hidden_, .collectives = 1}; }

std::vector<Parameter> HeadKind::parameters() const {
  std::vector<Parameter> parameters = {norm(kNorm, "model.norm.weight", hidden_, norm_offset_)};
  if (!tied_) parameters.push_back(matrix(kOutput, {"lm_head.weight"}, hidden_, {{vocab_, vocab_}}));
  return parameters;
}

std::string HeadKind::tp_fault(int tp) const { return vocabulary_fault(vocab_, tp); }

// Logits, and cross-entropy that reads them for the maximum and the sum and rewrites them as gradients.
TokenWork HeadKind::work() const {
  return {.products = hidden_ * vocab_, .elements = 4 * vocab_, .collectives = 2};
}

// Its input and the gradient of that; the norm's input and gradient, or a chunk's rows of both.
TokenBytes HeadKind::bytes(int, int64_t element_bytes) const {
  return {.forward = element_bytes * 4 * hidden_};
}

}  // namespace sluice::model

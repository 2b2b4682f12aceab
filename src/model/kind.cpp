#include "model/kind.h"

#include <utility>

#include "base/text.h"
#include "model/derive.h"

namespace sluice::model {
namespace {

template <typename Value, typename Variant>
const Value* value_in(const Variant& variant) {
  const auto* const found = std::get_if<std::shared_ptr<const Value>>(&variant);
  return found != nullptr ? found->get() : nullptr;
}

}  // namespace

Kind::Kind(Embedding embedding)
    : value_(std::make_shared<const Embedding>(std::move(embedding))),
      parameters_(parameters_of(*this->embedding())) {}
Kind::Kind(Layer layer)
    : value_(std::make_shared<const Layer>(std::move(layer))), parameters_(parameters_of(*this->layer())) {}
Kind::Kind(Head head)
    : value_(std::make_shared<const Head>(std::move(head))), parameters_(parameters_of(*this->head())) {}

const Embedding* Kind::embedding() const { return value_in<Embedding>(value_); }
const Layer* Kind::layer() const { return value_in<Layer>(value_); }
const Head* Kind::head() const { return value_in<Head>(value_); }

std::string Kind::tp_fault(int tp) const {
  if (layer() != nullptr) return tp_fault_of(*layer(), tp);
  if (head() != nullptr && !head()->is_vocabulary()) return "";
  const int64_t vocab = embedding() != nullptr ? embedding()->table.rows() : head()->output.rows();
  return tp > vocab ? base::text("tp ", tp, " is above vocab ", vocab) : "";
}

// Logits, and cross-entropy that reads them for the maximum and the sum and rewrites them as gradients.
TokenWork Kind::work() const {
  if (layer() != nullptr) return work_of(*layer(), parameters_);
  if (embedding() != nullptr) return {.elements = 2 * embedding()->table.columns, .collectives = 1};
  const Weight& output = head()->output;
  int64_t products = output.rows() * output.columns, trained = output.trained ? products : 0;
  if (head()->neck) {
    const int64_t neck = output.columns * output.columns;
    products += neck;
    if (head()->neck->dense.trained) trained += neck;
  }
  return {.products = products, .trained = trained, .elements = 4 * output.rows(), .collectives = 2};
}

// The head's input and the gradient of that; the norm's input and gradient, or a chunk's rows of both.
TokenBytes Kind::bytes(const Cut& cut, int64_t element_bytes) const {
  if (layer() != nullptr) return bytes_of(*layer(), parameters_, cut, element_bytes);
  if (embedding() != nullptr) {
    if (!embedding()->norm) return {};
    // Its rows before the norm stay, and nothing makes them again.
    const int64_t row = (element_bytes * embedding()->table.columns + cut.tp - 1) / cut.tp;
    return {.saved = row, .recompute_input = row, .forward = row, .backward = 3 * row};
  }
  return {.forward = element_bytes * 4 * head()->output.columns};
}

CacheBytes Kind::cache(const Cut& cut, int64_t element_bytes) const {
  return layer() != nullptr ? cache_of(*layer(), cut, element_bytes) : CacheBytes();
}

}  // namespace sluice::model

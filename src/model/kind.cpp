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

// The head writes logits, reads them for cross-entropy's maximum and sum, and rewrites them as gradients.
TokenWork Kind::work() const {
  if (layer() != nullptr) return work_of(*layer(), parameters_);
  if (embedding() != nullptr) {
    TokenWork work{.elements = 2 * embedding()->table.columns, .collectives = 1};
    if (const auto& by_layer = embedding()->by_layer) {
      work.products = by_layer->columns() * embedding()->table.columns;
      if (by_layer->projection.trained) work.trained = work.products;
      work.elements += 8 * by_layer->columns();
      work.collectives = 2;
    }
    return work;
  }
  const Weight& output = head()->output;
  int64_t products = output.rows() * output.columns, trained = output.trained ? products : 0;
  if (head()->neck) {
    const int64_t neck = output.columns * output.columns;
    products += neck;
    if (head()->neck->dense.trained) trained += neck;
  }
  return {.products = products, .trained = trained, .elements = 4 * output.rows(), .collectives = 2};
}

// The head's input and its gradient; the norm's input and gradient, or a chunk's rows of both.
TokenBytes Kind::bytes(const Cut& cut, int64_t element_bytes) const {
  if (layer() != nullptr) return bytes_of(*layer(), parameters_, cut, element_bytes);
  if (embedding() != nullptr) {
    const auto of_rank = [&](int64_t width) { return (element_bytes * width + cut.tp - 1) / cut.tp; };
    const int64_t row = of_rank(embedding()->table.columns);
    TokenBytes bytes;
    // The embedding's rows before the norm are saved and never recomputed.
    if (embedding()->norm)
      bytes = {.saved = row, .recompute_input = row, .forward = row, .backward = 3 * row};
    if (const auto& by_layer = embedding()->by_layer) {
      // Likewise the normed row for each layer, beside the rows that layers take. A row of all columns comes
      // from the table, and its gradient returns there.
      const int64_t all = of_rank(by_layer->columns());
      bytes.saved += row + 2 * all;
      bytes.recompute_input = bytes.saved;
      bytes.forward += element_bytes * by_layer->columns() + 3 * all;
      bytes.backward += element_bytes * by_layer->columns() + 4 * all + 2 * row;
    }
    return bytes;
  }
  return {.forward = element_bytes * 4 * head()->output.columns};
}

TokenWork Kind::mtp_work() const {
  return head() != nullptr && head()->mtp ? work_of(*head()->mtp, head()->output) : TokenWork();
}

TokenBytes Kind::mtp_bytes(const Cut& cut, int64_t element_bytes) const {
  return head() != nullptr && head()->mtp ? bytes_of(*head()->mtp, cut, element_bytes) : TokenBytes();
}

CacheBytes Kind::cache(const Cut& cut, int64_t element_bytes) const {
  return layer() != nullptr ? cache_of(*layer(), cut, element_bytes) : CacheBytes();
}

}  // namespace sluice::model

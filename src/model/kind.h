// A kind of operation as planning sees it: its parameters and how TP cuts them, what of a micro-batch's
// lengths its time depends on, the bytes of its activations, its names in Hugging Face files. All of it is
// derived from a value (model/layer.h). How it is computed is the other half, layers/operation.h.
//
// A model is a list of operations (model/program.h): an embedding, layers, a head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/parameter.h"

namespace sluice::model {

struct Embedding;  // model/layer.h
struct Layer;
struct Head;

class Kind {
 public:
  explicit Kind(Embedding embedding);
  explicit Kind(Layer layer);
  explicit Kind(Head head);

  // The value; null: it is another.
  const Embedding* embedding() const;
  const Layer* layer() const;
  const Head* head() const;

  // In their flat order, without names and offsets; at most 64, and adapters behind all others.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Whether any of its products may be narrow.
  bool takes_low_precision() const {
    return std::ranges::any_of(parameters_, &Parameter::takes_low_precision);
  }
  // Why TP cannot cut it, or "".
  std::string tp_fault(int tp) const;
  TokenWork work() const;
  // Experts count at work with all tokens in one expert, so whatever the routing. The head does everything in
  // its forward; its bytes are those beside a chunk's logits.
  TokenBytes bytes(const Cut& cut, int64_t element_bytes) const;
  CacheBytes cache(const Cut& cut, int64_t element_bytes) const;

 private:
  template <typename Value>
  using Shared = std::shared_ptr<const Value>;
  std::variant<Shared<Embedding>, Shared<Layer>, Shared<Head>> value_;
  std::vector<Parameter> parameters_;
};

}  // namespace sluice::model

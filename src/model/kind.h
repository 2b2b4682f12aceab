// A kind of operation for planning: its parameters and their TP cut, how its time depends on a micro-batch's
// lengths, the bytes of its activations, its names in Hugging Face files. Everything is derived from a value
// (model/layer.h). layers/operation.h computes it.
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

  // The value; null if the kind holds another type of value.
  const Embedding* embedding() const;
  const Layer* layer() const;
  const Head* head() const;

  // Parameters in flat order, without names and offsets: at most 64, then the adapters.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Whether any of its products may have low precision.
  bool takes_low_precision() const {
    return std::ranges::any_of(parameters_, &Parameter::takes_low_precision);
  }
  // Why TP cannot cut it, or "".
  std::string tp_fault(int tp) const;
  TokenWork work() const;  // a head's without its MTP layer
  // Working memory of experts assumes all tokens in one expert, so it holds for any routing. The head does
  // all its work in its forward; its bytes do not include a chunk's logits.
  TokenBytes bytes(const Cut& cut, int64_t element_bytes) const;
  // The work of a token in the head's MTP layer (model/derive.h); zeros without one.
  TokenWork mtp_work() const;
  TokenBytes mtp_bytes(const Cut& cut, int64_t element_bytes) const;
  CacheBytes cache(const Cut& cut, int64_t element_bytes) const;

 private:
  template <typename Value>
  using Shared = std::shared_ptr<const Value>;
  std::variant<Shared<Embedding>, Shared<Layer>, Shared<Head>> value_;
  std::vector<Parameter> parameters_;
};

}  // namespace sluice::model

// The attention part of a block, with what families vary of it: grouped-query heads, biases, norms of queries
// and keys, a norm behind it, a window, sinks.
#pragma once

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class AttentionKind final : public Part {
 public:
  static constexpr std::string_view kName = "attention";
  // Roles of its parameters; those of what a shape lacks are absent.
  static constexpr std::string_view kNorm = "attention_norm";
  static constexpr std::string_view kQkv = "qkv";           // rows q, k, v: x·wᵀ
  static constexpr std::string_view kQkvBias = "qkv_bias";  // likewise
  static constexpr std::string_view kQNorm = "q_norm";      // of one head's width, or of all heads'
  static constexpr std::string_view kKNorm = "k_norm";
  static constexpr std::string_view kSinks = "sinks";        // one score a query head
  static constexpr std::string_view kOut = "attention_out";  // stored [in, out]: a·w
  static constexpr std::string_view kOutBias = "attention_out_bias";
  static constexpr std::string_view kNormBehind = "attention_norm_behind";  // where a norm stands behind

  AttentionKind(const Shape& shape, const BlockType& type) : shape_(shape), type_(type) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  PartBytes bytes(const Cut& cut, int64_t element_bytes) const override;
  CacheBytes cache(const Cut& cut, int64_t element_bytes) const override;

 private:
  Shape shape_;
  BlockType type_;
};

}  // namespace sluice::model

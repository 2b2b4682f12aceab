// Latent attention (MLA; DeepSeek-AI, DeepSeek-V2, 2024, section 2.1): keys and values of all heads are made
// from one narrow row of a token, queries from another. Counted, not computed, as training computes it: with
// keys and values of every head, which is also what lanes exchange. What is narrow is whole on every TP rank.
#pragma once

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class LatentAttentionKind final : public Part {
 public:
  static constexpr std::string_view kName = "latent_attention";

  explicit LatentAttentionKind(const Shape& shape, const BlockType& /*type*/) : shape_(shape) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  PartBytes bytes(const Cut& cut, int64_t element_bytes) const override;

 private:
  int64_t key_width() const { return shape_.latent.unrotated + shape_.latent.rotated; }  // and queries'
  // Of a token's narrow rows, the rotated part of keys included.
  int64_t narrow() const { return shape_.latent.q_rank + shape_.latent.kv_rank + shape_.latent.rotated; }

  Shape shape_;
};

}  // namespace sluice::model

// Latent attention (MLA; DeepSeek-AI, DeepSeek-V2, 2024, section 2.1): keys and values of all heads are made
// from one narrow row of a token, queries from another. As training computes it: with keys and values of
// every head, which is also what lanes that exchange heads send; round a ring go narrow rows. Values are as
// wide as keys, by zeros. What is narrow is whole on every TP rank, each of which makes it of its own rows.
#pragma once

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class LatentAttentionKind final : public Part {
 public:
  static constexpr std::string_view kName = "latent_attention";
  static constexpr std::string_view kNorm = "attention_norm";
  static constexpr std::string_view kQNarrow = "q_narrow";
  static constexpr std::string_view kQNorm = "q_norm";
  static constexpr std::string_view kQ = "q";
  static constexpr std::string_view kKvNarrow = "kv_narrow";
  static constexpr std::string_view kKvNorm = "kv_norm";
  static constexpr std::string_view kKv = "kv";
  static constexpr std::string_view kOut = "attention_out";  // stored [in, out]: a·w
  static constexpr double kNormEps = 1e-6;                   // of narrow rows, whatever the shape's

  explicit LatentAttentionKind(const Shape& shape, const BlockType& /*type*/) : shape_(shape) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  PartBytes bytes(const Cut& cut, int64_t element_bytes) const override;
  CacheBytes cache(const Cut& cut, int64_t element_bytes) const override;

 private:
  int64_t key_width() const { return shape_.latent.unrotated + shape_.latent.rotated; }  // and queries'
  // Of a token's narrow rows, the rotated part of keys included.
  int64_t narrow() const { return shape_.latent.q_rank + shape_.latent.kv_rank + shape_.latent.rotated; }

  Shape shape_;
};

// Multiply-adds a token that make keys and values of all heads of its narrow row; 0 for other attention.
inline int64_t products_of_keys(const Shape& shape) {
  return shape.latent.kv_rank * shape.heads * (shape.latent.unrotated + shape.latent.values);
}

// Multiply-adds of a row with each token whose narrow row stayed, scores and values each; 0 for other
// attention.
inline int64_t products_with_narrow(const Shape& shape) {
  return shape.heads * (2 * shape.latent.kv_rank + shape.latent.rotated) / 2 *
         (shape.latent.kv_rank > 0 ? 1 : 0);
}

}  // namespace sluice::model

// The ends of a model: the embedding, and the head with final norm and loss.
#pragma once

#include "model/end_roles.h"
#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class EmbeddingKind final : public Kind {
 public:
  static constexpr std::string_view kName = "embedding";
  static constexpr std::string_view kTable = kEmbeddingRole;

  explicit EmbeddingKind(const Shape& shape);

  std::string_view name() const override { return kName; }
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  TokenBytes bytes(const Cut&, int64_t) const override { return {}; }

 private:
  int64_t hidden_;
  int64_t vocab_;
};

// Does everything in its forward: logits never live from one pass to the other. Its bytes are those beside a
// chunk's logits.
class HeadKind final : public Kind {
 public:
  static constexpr std::string_view kName = "head";
  static constexpr std::string_view kNorm = kFinalNormRole;
  static constexpr std::string_view kOutput = kHeadRole;  // absent where embeddings are tied

  explicit HeadKind(const Shape& shape);

  std::string_view name() const override { return kName; }
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  TokenBytes bytes(const Cut& cut, int64_t element_bytes) const override;

 private:
  int64_t hidden_;
  int64_t vocab_;
  bool output_trained_;
};

}  // namespace sluice::model

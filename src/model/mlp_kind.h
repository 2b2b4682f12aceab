// The gated MLP part of a block.
#pragma once

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class MlpKind final : public Part {
 public:
  static constexpr std::string_view kName = "mlp";
  static constexpr std::string_view kNorm = "mlp_norm";
  static constexpr std::string_view kGateUp = "gate_up";              // rows gate, up: x·wᵀ
  static constexpr std::string_view kDown = "down";                   // stored [in, out]: a·w
  static constexpr std::string_view kNormBehind = "mlp_norm_behind";  // where a norm stands behind

  MlpKind(const Shape& shape, const BlockType&) : shape_(shape) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  PartBytes bytes(const Cut& cut, int64_t element_bytes) const override;

 private:
  Shape shape_;
};

}  // namespace sluice::model

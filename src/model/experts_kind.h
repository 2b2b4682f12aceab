// Experts in place of the MLP: a router gives each token some of many gated MLPs. Counted, not computed: what
// it says of bytes is what a computation would hold that keeps tokens in the order of experts, and whose
// experts TP cuts each by its width.
#pragma once

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class ExpertsKind final : public Part {
 public:
  static constexpr std::string_view kName = "experts";

  explicit ExpertsKind(const Shape& shape, const BlockType& /*type*/)
      : hidden_(shape.hidden), experts_(shape.experts) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  PartBytes bytes(int tp, int64_t element_bytes) const override;
  // Parameters of the experts that a token does not visit.
  int64_t unvisited() const;

 private:
  // Widths that a token passes, those of shared experts included.
  int64_t visited_hidden() const { return experts_.per_token * experts_.hidden + experts_.shared_hidden; }

  int64_t hidden_;
  Experts experts_;
};

}  // namespace sluice::model

// Experts in place of the MLP: a router gives each token some of many gated MLPs (Shazeer et al.,
// "Outrageously Large Neural Networks", 2017), and all tokens a shared one, where there is one. Stored expert
// by expert; TP cuts each by its width.
#pragma once

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

// What stands for an expert's number in the name of a tensor that each has: "mlp.experts.{}.up_proj.weight".
inline constexpr std::string_view kOfExpert = "{}";
// Names of the tensors of all experts, one expert behind the other.
std::vector<std::string> of_each_expert(int64_t experts, const std::vector<std::string>& tensors);

class ExpertsKind final : public Part {
 public:
  static constexpr std::string_view kName = "experts";
  static constexpr std::string_view kNorm = "mlp_norm";
  static constexpr std::string_view kRouter = "router";  // [experts, hidden]: x·wᵀ, whole on every TP rank
  static constexpr std::string_view kGateUp = "experts_gate_up";  // of each expert rows gate, up: x·wᵀ
  static constexpr std::string_view kDown = "experts_down";       // of each stored [in, out]: a·w
  // Of models that have biases.
  static constexpr std::string_view kRouterBias = "router_bias";
  static constexpr std::string_view kGateUpBias = "experts_gate_up_bias";
  static constexpr std::string_view kDownBias =
      "experts_down_bias";  // of each `hidden`, whole on every TP rank
  // [experts, 1], whole on every TP rank and counted (Learns): what Experts::corrected adds to scores, and
  // the last step's visits of Experts::remembers_loads.
  static constexpr std::string_view kCorrection = "router_correction";
  static constexpr std::string_view kLoads = "router_loads";
  static constexpr std::string_view kSharedGateUp = "shared_gate_up";
  static constexpr std::string_view kSharedDown = "shared_down";
  static constexpr std::string_view kSharedGate = "shared_gate";  // [1, hidden], whole on every TP rank

  explicit ExpertsKind(const Shape& shape, const BlockType& /*type*/)
      : hidden_(shape.hidden), norm_offset_(shape.norm_offset), experts_(shape.experts) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  // At work with all tokens in one expert, so whatever the routing.
  PartBytes bytes(const Cut& cut, int64_t element_bytes) const override;
  // Parameters of the experts that a token does not visit.
  int64_t unvisited() const;

 private:
  // Widths that a token passes, those of shared experts included.
  int64_t visited_hidden() const { return experts_.per_token * experts_.hidden + experts_.shared_hidden; }

  int64_t hidden_;
  double norm_offset_;
  Experts experts_;
};

// The inner width of a gated MLP that has no more at work than any layer's, with experts or without: of those
// what visits hold, two rows of gate and up and one of SwiGLU's, for an MLP's four. Where lanes divide
// experts visits hold nothing.
int64_t least_ffn(const Shape& shape, int expert_lanes);

// What a rank has at work of rows that visit its experts from other lanes, whatever the routing and however
// many rows it has itself (layers/experts_travel.h).
int64_t wave_bytes(const Shape& shape, const Cut& cut, int64_t element_bytes);

}  // namespace sluice::model

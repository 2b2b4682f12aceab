// Widths: F this rank's part of the inner width; G = 2F, or F without a gate.
#include "layers/mlp_block.h"

#include <utility>

#include "layers/frame.h"
#include "layers/gated.h"
#include "model/roles.h"
#include "ops/xielu.h"

namespace sluice::layers {
namespace {

struct GatedState final : MixerState {
  at::Tensor gate_up_TG;
  std::vector<SavedRows> rows() override { return {{gate_up_TG}}; }
  std::vector<at::Tensor*> made_again() override { return {&gate_up_TG}; }
};

class MlpMixer final : public Mixer {
 public:
  MlpMixer(const Site& site, const model::Mlp& own)
      : own_(own),
        alpha_2_(site.own_weights().vector(model::roles::kActivationAlphas)),
        dalpha_2_(site.own_gradients().vector(model::roles::kActivationAlphas)) {}

  Mixed forward(const RowLayout&, PartRows& rows, MixerStatePtr* saved) const override {
    at::Tensor gate_up_TG = rows.product(0);
    rows.release();
    Mixed mixed{active(gate_up_TG)};
    if (saved != nullptr) {
      auto state = std::make_unique<GatedState>();
      state->gate_up_TG = std::move(gate_up_TG);
      *saved = std::move(state);
    }
    return mixed;
  }
  Mixed again(const RowLayout& layout, PartRows& rows, MixerState& saved) const override {
    const at::Tensor& gate_up_TG = static_cast<GatedState&>(saved).gate_up_TG;
    return gate_up_TG.defined() ? Mixed{active(gate_up_TG)} : forward(layout, rows, nullptr);
  }
  void restore(const RowLayout&, PartRows& rows, MixerState& saved) const override {
    static_cast<GatedState&>(saved).gate_up_TG = rows.product(0);
  }
  at::Tensor backward(const RowLayout&, MixerStatePtr saved, Arriving from, PartRows&,
                      PartGradient& to) const override {
    at::Tensor dgate_up_TG = std::move(static_cast<GatedState&>(*saved).gate_up_TG);
    at::Tensor a_TF;
    if (has_alphas()) {
      a_TF = ops::xielu(dgate_up_TG, alpha_2_);
      dgate_up_TG = ops::xielu_backward(from.da_TA, dgate_up_TG, alpha_2_, dalpha_2_);
    } else {
      a_TF = activated_backward(own_.gate, from.da_TA, dgate_up_TG);
    }
    to.add(0, std::move(dgate_up_TG));
    return a_TF;
  }

 private:
  bool has_alphas() const { return own_.gate.activation == model::Activation::kXielu; }
  at::Tensor active(const at::Tensor& gate_up_TG) const {
    return has_alphas() ? ops::xielu(gate_up_TG, alpha_2_) : activated(own_.gate, gate_up_TG);
  }

  const model::Mlp& own_;
  at::Tensor alpha_2_, dalpha_2_;  // for xIELU
};

}  // namespace

std::unique_ptr<const Part> make_mlp(const Site& site, const model::Part& part) {
  namespace roles = model::roles;
  return make_framed(
      site, part,
      {.out = roles::kDown, .out_bias = roles::kDownBias, .in = {{roles::kGateUp, roles::kGateUpBias}}},
      std::make_unique<MlpMixer>(site, std::get<model::Mlp>(part.mixer)));
}

}  // namespace sluice::layers

// Widths: F this rank's part of the inner width, G = 2F.
#include "layers/mlp_block.h"

#include <utility>

#include "layers/frame.h"
#include "layers/gated.h"
#include "model/roles.h"

namespace sluice::layers {
namespace {

struct GatedState final : MixerState {
  at::Tensor gate_up_TG;
  std::vector<SavedRows> rows() override { return {{gate_up_TG}}; }
  std::vector<at::Tensor*> made_again() override { return {&gate_up_TG}; }
};

class GatedMixer final : public Mixer {
 public:
  explicit GatedMixer(const model::Gate& gate) : gate_(gate) {}

  Mixed forward(const MicroBatchLayout&, PartRows& rows, MixerStatePtr* saved) const override {
    at::Tensor gate_up_TG = rows.product(0);
    rows.release();
    Mixed mixed{gated(gate_, gate_up_TG)};
    if (saved != nullptr) {
      auto state = std::make_unique<GatedState>();
      state->gate_up_TG = std::move(gate_up_TG);
      *saved = std::move(state);
    }
    return mixed;
  }
  Mixed again(const MicroBatchLayout& layout, PartRows& rows, MixerState& saved) const override {
    const at::Tensor& gate_up_TG = static_cast<GatedState&>(saved).gate_up_TG;
    return gate_up_TG.defined() ? Mixed{gated(gate_, gate_up_TG)} : forward(layout, rows, nullptr);
  }
  void restore(const MicroBatchLayout&, PartRows& rows, MixerState& saved) const override {
    static_cast<GatedState&>(saved).gate_up_TG = rows.product(0);
  }
  at::Tensor backward(const MicroBatchLayout&, MixerStatePtr saved, Arriving from, PartRows&,
                      PartGradient& to) const override {
    at::Tensor dgate_up_TG = std::move(static_cast<GatedState&>(*saved).gate_up_TG);
    at::Tensor a_TF = gated_backward(gate_, from.da_TA, dgate_up_TG);
    to.add(0, std::move(dgate_up_TG));
    return a_TF;
  }

 private:
  const model::Gate& gate_;
};

}  // namespace

std::unique_ptr<const Part> make_mlp(const Site& site, const model::Part& part) {
  namespace roles = model::roles;
  return make_framed(site, part,
                     {.norm = roles::kMlpNorm,
                      .behind = roles::kMlpNormBehind,
                      .out = roles::kDown,
                      .in = {{roles::kGateUp}}},
                     std::make_unique<GatedMixer>(std::get<model::GatedMlp>(part.mixer).gate));
}

}  // namespace sluice::layers

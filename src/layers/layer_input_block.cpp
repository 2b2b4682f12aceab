// Widths: P of a layer's input, F this rank's part of P.
#include "layers/layer_input_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "layers/carried_rows.h"
#include "layers/frame.h"
#include "layers/gated.h"
#include "model/roles.h"

namespace sluice::layers {
namespace {

struct LayerInputState final : MixerState {
  at::Tensor gate_TF;  // before its activation
  std::vector<SavedRows> rows() override { return {{gate_TF}}; }
  std::vector<at::Tensor*> made_again() override { return {&gate_TF}; }
};

base::Interval own_columns(const Site& site) {
  const std::vector<model::Parameter>& parameters = site.own_weights().kind().parameters();
  const auto gate = std::ranges::find(parameters, model::roles::kLayerInputGate, &model::Parameter::role);
  return model::local_rows(*gate, site.context.cut(site.layer())).front();
}

class LayerInputMixer final : public Mixer {
 public:
  LayerInputMixer(const Site& site, const model::LayerInput& own)
      : own_(own),
        parallel_(site.context.parallel),
        layer_(site.layer()),
        columns_(own_columns(site)),
        wants_input_(site.table.program.first_trained() == site.table.program.embedding()) {}

  Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* saved) const override {
    at::Tensor gate_TF = rows.product(0);
    rows.release();
    Mixed mixed{act(own_.activation, gate_TF).mul_(input_TF(layout))};
    if (saved != nullptr) {
      auto state = std::make_unique<LayerInputState>();
      state->gate_TF = std::move(gate_TF);
      *saved = std::move(state);
    }
    return mixed;
  }
  Mixed again(const RowLayout& layout, PartRows& rows, MixerState& saved) const override {
    const at::Tensor& gate_TF = static_cast<LayerInputState&>(saved).gate_TF;
    if (!gate_TF.defined()) return forward(layout, rows, nullptr);
    return {act(own_.activation, gate_TF).mul_(input_TF(layout))};
  }
  void restore(const RowLayout&, PartRows& rows, MixerState& saved) const override {
    static_cast<LayerInputState&>(saved).gate_TF = rows.product(0);
  }
  at::Tensor backward(const RowLayout& layout, MixerStatePtr saved, Arriving from, PartRows&,
                      PartGradient& to) const override {
    const at::Tensor gate_TF = std::move(static_cast<LayerInputState&>(*saved).gate_TF);
    const at::Tensor input = input_TF(layout);
    const at::Tensor act_TF = act(own_.activation, gate_TF);
    if (wants_input_) add_input_gradient(layout, from.da_TA * act_TF);
    to.add(0, act_backward(own_.activation, from.da_TA * input, gate_TF));
    return act_TF * input;
  }

 private:
  at::Tensor input_TF(const RowLayout& layout) const {
    SLUICE_ASSERT(layout.carried && layout.carried->input_SC.defined(), "a layer's input that nobody made");
    const at::Tensor input_SP = layout.carried->input_of(layer_, own_.width).contiguous();
    return parallel_.all_gather_rows(input_SP).narrow(1, columns_.begin, columns_.size());
  }
  void add_input_gradient(const RowLayout& layout, const at::Tensor& dinput_TF) const {
    if (parallel_.tp == 1) return layout.carried->add_input_gradient(layer_, dinput_TF);
    const at::Tensor dinput_TP = at::zeros({dinput_TF.size(0), own_.width}, dinput_TF.options());
    dinput_TP.narrow(1, columns_.begin, columns_.size()).copy_(dinput_TF);
    layout.carried->add_input_gradient(layer_, parallel_.reduce_scatter_rows(dinput_TP));
  }

  const model::LayerInput& own_;
  TensorParallel parallel_;
  int64_t layer_;  // index in the model
  base::Interval columns_;
  bool wants_input_;  // whether the embedding, or anything before this layer, trains
};

}  // namespace

std::unique_ptr<const Part> make_layer_input(const Site& site, const model::Part& part) {
  namespace roles = model::roles;
  return make_framed(site, part, {.out = roles::kLayerInputOut, .in = {{roles::kLayerInputGate}}},
                     std::make_unique<LayerInputMixer>(site, std::get<model::LayerInput>(part.mixer)));
}

}  // namespace sluice::layers

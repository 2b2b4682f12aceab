// Embeddings by layer (Google, Gemma 3n and Gemma 4, 2025): the embedding's rows for each layer, and the part
// that takes them.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "model/derive.h"
#include "model/make_parts.h"
#include "model/roles.h"

namespace sluice::model {

Part layer_input_part(const LayerInput& own, int64_t hidden) {
  const RowGroup each{own.width, own.width};
  Part part{.mixer = own};
  part.weights.push_back(
      matrix(roles::kLayerInputGate, {"per_layer_input_gate.weight"}, hidden, {each}, Use::kIn));
  part.weights.push_back(out(roles::kLayerInputOut, "per_layer_projection.weight", hidden, each));
  return part;
}

LayerEmbedding layer_embedding(int64_t layers, int64_t width, int64_t hidden, int64_t vocab, double eps) {
  const int64_t columns = layers * width;
  LayerEmbedding made{
      .layers = layers,
      .width = width,
      .table = matrix(roles::kLayerEmbedding, {"model.embed_tokens_per_layer.weight"}, columns,
                      {{vocab, vocab}}, Use::kIn),
      .projection = matrix(roles::kLayerProjection, {"model.per_layer_model_projection.weight"}, hidden,
                           {{columns, 0}}, Use::kIn),
      .norm = norm({roles::kLayerProjectionNorm, {}}, "model.per_layer_projection_norm.weight", width, {},
                   eps, /*offset=*/0),
      .table_scale = std::sqrt(static_cast<double>(width)),
      .projection_scale = 1 / std::sqrt(static_cast<double>(hidden)),
      .scale = std::sqrt(0.5)};
  made.table.adapts = made.projection.adapts = false;
  return made;
}

// The gate is saved; its output is recomputed. All TP ranks' columns of the layer's input are gathered, and
// their gradients summed. Gradients of all layers' columns stay in memory until the embedding's backward,
// which takes them.
MixerFigures figures_of(const LayerInput& own, const Part&, const AtWork& at) {
  const int64_t gate = at.out;
  MixerFigures f{.elements = 4 * own.width, .makes_out_again = false};
  f.forward = at.element * (2 * gate + 2 * own.width + at.gathered);
  f.backward = at.element * (at.gathered + 3 * own.width + std::max(4 * gate, at.behind(gate)));
  f.ring_backward = f.backward;
  return f;
}

std::string tp_fault_of(const LayerInput& own, int tp) {
  return tp > own.width ? base::text("tp ", tp, " is above hidden_size_per_layer_input ", own.width) : "";
}

}  // namespace sluice::model

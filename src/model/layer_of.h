// The layers and ends of an outline as values.
#pragma once

#include <functional>

#include "model/layer.h"
#include "model/outline.h"

namespace sluice::model {

// The type's layer without tuning, ignoring the type's own layer.
Layer usual_layer(const Outline& outline, const BlockType& type);
// Gives each layer a definition of its own: its type's usual layer as changed by `change`. For properties
// that no member of the outline has.
void change_layers(Outline& outline, const std::function<void(const BlockType& type, Layer& layer)>& change);
// The same, with the index of the layer.
void change_each_layer(Outline& outline,
                       const std::function<void(int64_t index, const BlockType& type, Layer& layer)>& change);
// The same, for attention's values alone.
void change_attention(Outline& outline, const std::function<void(Attention& own)>& change);
// Puts another mixer and its weights between a part's norms, with the family's names.
void replace_part(const Outline& outline, Part& part, Part made);
// Puts a part beside the first part of a layer, whose norm it then shares.
void put_beside(const Layer& layer, Part& part);
// Puts experts beside the MLP at a layer's end, each with norms around it, and a norm behind their sum.
void put_beside_mlp(const Outline& outline, Layer& layer, Part experts);
Layer layer_of(const Outline& outline, const BlockType& type);
Embedding embedding_of(const Outline& outline);
Head head_of(const Outline& outline);

}  // namespace sluice::model

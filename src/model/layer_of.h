// The layers and ends of a shape as values.
#pragma once

#include "model/layer.h"
#include "model/shape.h"

namespace sluice::model {

// The type's layer without tuning, as if the type had no layer of its own.
Layer usual_layer(const Shape& shape, const BlockType& type);
Layer layer_of(const Shape& shape, const BlockType& type);
Embedding embedding_of(const Shape& shape);
Head head_of(const Shape& shape);

}  // namespace sluice::model

// The integer sizes of a shape, by their names in configurations, checkpoints and messages.
#pragma once

#include <span>
#include <string>

#include "base/range.h"
#include "model/shape.h"

namespace sluice::model {

struct ShapeSize {
  const char* name;
  const char* meaning;
  int64_t Shape::*value;
  base::Range<int64_t> range;
  int64_t (*otherwise)(const Shape&);  // the default, from the sizes before it
};

// Layers first.
std::span<const ShapeSize> shape_sizes();

// "32 layers, hidden 4096".
std::string layers_text(const Shape& shape);

}  // namespace sluice::model

// The integer sizes of an outline, by their names in configurations, checkpoints and messages.
#pragma once

#include <span>
#include <string>

#include "base/range.h"
#include "model/outline.h"

namespace sluice::model {

struct OutlineSize {
  const char* name;
  const char* meaning;
  int64_t Outline::*value;
  base::Range<int64_t> range;
  int64_t (*otherwise)(const Outline&);  // the default, from the sizes before it
};

// Layers first.
std::span<const OutlineSize> outline_sizes();

}  // namespace sluice::model

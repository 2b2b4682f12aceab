// The axis of a chart: its range, its round ticks, and its grid in SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/markup.h"

namespace sluice::base {

struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;  // round numbers within [low, high]

  double share(double value) const { return (value - low) / (high - low); }
  // Pixels from the top of a plot of `height` pixels to `value`.
  double down(double value, double height) const { return height * (1 - share(value)); }
};

// From `low` to `high`, extended to round ticks, about `ticks` of them.
Axis round_axis(double low, double high, int ticks);
// The tick with as many decimal places as tell the axis' ticks apart.
std::string tick_text(const Axis& axis, double tick);

// A line across and a label on the left for each tick of a vertical axis; `unit` follows each number.
void draw_grid(Markup& out, const Axis& axis, double height, std::string_view unit = "");

}  // namespace sluice::base

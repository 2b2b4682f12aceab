#include "base/axis.h"

#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace sluice::base {

namespace {

// Decimal places that tell an axis' ticks apart.
int tick_digits(const Axis& axis) {
  if (axis.ticks.size() < 2) return 0;
  const double step = axis.ticks[1] - axis.ticks[0];
  int digits = 0;
  for (double scaled = step; digits < 6 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled;
       scaled *= 10)
    ++digits;
  return digits;
}

}  // namespace

Axis round_axis(double low, double high, int ticks) {
  if (!(high > low)) high = low + (low == 0 ? 1 : std::abs(low) * 0.1);
  const double rough = (high - low) / ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power < rough * 0.999) continue;
    step = factor * power;
    break;
  }
  Axis axis{std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, {}};
  const auto count = static_cast<int>(std::llround((axis.high - axis.low) / step));
  for (int i = 0; i <= count; ++i) axis.ticks.push_back(axis.low + i * step);
  return axis;
}

std::string tick_text(const Axis& axis, double tick) {
  if (tick == 0) return "0";
  char digits[64];
  std::snprintf(digits, sizeof digits, "%.*f", tick_digits(axis), tick);
  return digits;
}

void draw_grid(Markup& out, const Axis& axis, double height, std::string_view unit) {
  for (const double tick : axis.ticks) {
    const double y = axis.down(tick, height);
    out.leaf("line",
             {{"class", "grid"}, {"x1", "0"}, {"x2", "100%"}, {"y1", coordinate(y)}, {"y2", coordinate(y)}});
    out.leaf("text", {{"class", "tick end"}, {"x", "-8"}, {"y", coordinate(y + 4)}},
             text(tick_text(axis, tick), unit));
  }
}

}  // namespace sluice::base

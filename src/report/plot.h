// Charts of values over steps. Positions across are percentages and positions down are pixels, so
// that a chart fills any width while its text keeps its size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/markup.h"

namespace sluice::report {

struct Series {
  std::string title;
  std::string style;  // CSS classes: colour and dashes
  std::vector<std::pair<double, double>> points;
  bool line = true;
  bool dots = false;
};

struct Chart {
  std::string label;  // for screen readers
  std::string x_title;
  std::string y_title;
  std::string unit;  // on the y axis
  bool from_zero = true;
  std::vector<Series> series;  // the first one is drawn on top
};

// A chart with a legend, and each series named at its end where there is room. Draws nothing without points.
void draw_chart(base::Markup& out, const Chart& chart);

}  // namespace sluice::report

#include "report/plot.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/axis.h"
#include "base/text.h"
#include "report/numbers.h"

namespace sluice::report {

using base::Axis;
using base::coordinate;
using base::Markup;
using base::text;

namespace {

constexpr double kHeight = 240;       // the plot's, in pixels
constexpr double kLineHeight = 15;    // a label's
constexpr size_t kMostPoints = 2000;  // a series is thinned to about as many

struct Bounds {
  double low = 0;
  double high = 0;
};

std::optional<Bounds> bounds_of(const Chart& chart, bool across) {
  std::optional<Bounds> bounds;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      const double value = across ? x : y;
      if (!bounds) bounds = {value, value};
      bounds->low = std::min(bounds->low, value);
      bounds->high = std::max(bounds->high, value);
    }
  }
  return bounds;
}

void draw_axes(Markup& out, const Chart& chart, const Axis& x, const Axis& y) {
  draw_grid(out, y, kHeight);
  for (const double tick : x.ticks) {
    out.leaf("text",
             {{"class", "tick middle"},
              {"x", coordinate(100 * x.share(tick), "%")},
              {"y", coordinate(kHeight + 18)}},
             tick_text(x, tick));
  }
  out.leaf("text", {{"class", "tick"}, {"x", "-44"}, {"y", "-14"}}, chart.y_title);
  out.leaf("text", {{"class", "tick end"}, {"x", "100%"}, {"y", coordinate(kHeight + 36)}}, chart.x_title);
}

void draw_line(Markup& out, const Series& series, const Axis& x, const Axis& y) {
  std::string points;
  const size_t stride = std::max<size_t>(1, series.points.size() / kMostPoints);
  for (size_t i = 0; i < series.points.size(); i += stride) {
    const auto& [px, py] = series.points[i];
    points +=
        text(points.empty() ? "" : " ", coordinate(1000 * x.share(px)), ",", coordinate(y.down(py, kHeight)));
  }
  const auto stretched = out.element("svg", {{"viewBox", text("0 0 1000 ", kHeight)},
                                             {"preserveAspectRatio", "none"},
                                             {"width", "100%"},
                                             {"height", text(kHeight)}});
  out.leaf("polyline", {{"class", "series " + series.style}, {"points", points}});
}

void draw_dots(Markup& out, const Series& series, const Axis& x, const Axis& y, const std::string& unit) {
  const size_t stride = std::max<size_t>(1, series.points.size() / kMostPoints);
  for (size_t i = 0; i < series.points.size(); i += stride) {
    const auto& [px, py] = series.points[i];
    const auto dot = out.element("circle", {{"class", "dot " + series.style},
                                            {"cx", coordinate(100 * x.share(px), "%")},
                                            {"cy", coordinate(y.down(py, kHeight))},
                                            {"r", series.points.size() > 150 ? "1.8" : "2.8"}});
    out.leaf("title", text(series.title, ", ", "step ", decimal(px, 0), ": ", significant(py, 3), " ", unit));
  }
}

// Names at the right end, moved apart where they would overlap.
void draw_names(Markup& out, const Chart& chart, const Axis& y) {
  struct Name {
    const Series* series;
    double at;
  };
  std::vector<Name> names;
  for (const Series& series : chart.series) {
    if (!series.points.empty()) names.push_back({&series, y.down(series.points.back().second, kHeight) + 4});
  }
  std::ranges::stable_sort(names, {}, &Name::at);
  for (size_t i = 1; i < names.size(); ++i)
    names[i].at = std::max(names[i].at, names[i - 1].at + kLineHeight);
  double limit = kHeight + 4;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    name->at = std::min(name->at, limit);
    limit = name->at - kLineHeight;
  }
  for (const Name& name : names) {
    out.leaf(
        "text",
        {{"class", "name " + name.series->style}, {"x", "100%"}, {"dx", "8"}, {"y", coordinate(name.at)}},
        name.series->title);
  }
}

// Names at the chart's end don't break into lines: the longest one decides how much room they take.
size_t longest_name(const Chart& chart) {
  size_t letters = 0;
  for (const Series& series : chart.series) letters = std::max(letters, series.title.size());
  return letters;
}

void draw_legend(Markup& out, const Chart& chart) {
  const auto legend = out.element("ul", {{"class", "legend narrow"}});
  for (const Series& series : chart.series) {
    if (series.points.empty()) continue;
    const auto item = out.element("li");
    {
      const auto sample = out.element(
          "svg", {{"class", "sample"}, {"width", "26"}, {"height", "10"}, {"aria-hidden", "true"}});
      if (series.line)
        out.leaf("line",
                 {{"class", "series " + series.style}, {"x1", "1"}, {"x2", "25"}, {"y1", "5"}, {"y2", "5"}});
      if (series.dots)
        out.leaf("circle", {{"class", "dot " + series.style}, {"cx", "13"}, {"cy", "5"}, {"r", "2.8"}});
    }
    out.text(series.title);
  }
}

}  // namespace

void draw_chart(Markup& out, const Chart& chart) {
  const std::optional<Bounds> across = bounds_of(chart, true);
  const std::optional<Bounds> upward = bounds_of(chart, false);
  if (!across) return;
  Axis x = base::round_axis(across->low, across->high, 8);
  std::erase_if(x.ticks, [&](double tick) {  // steps are whole
    return tick < across->low || tick > across->high || tick != std::round(tick);
  });
  x.low = across->low;
  x.high = across->high > across->low ? across->high : across->low + 1;
  const Axis y =
      base::round_axis(chart.from_zero ? std::min(0.0, upward->low) : upward->low, upward->high, 5);
  const bool named = chart.series.size() > 1;
  if (named) draw_legend(out, chart);
  const auto frame =
      named
          ? out.element("div", {{"class", "plot named"}, {"style", text("--letters:", longest_name(chart))}})
          : out.element("div", {{"class", "plot"}});
  const auto plot = out.element(
      "svg",
      {{"role", "img"}, {"aria-label", chart.label}, {"width", "100%"}, {"height", text(kHeight + 40)}});
  draw_axes(out, chart, x, y);
  for (auto series = chart.series.rbegin(); series != chart.series.rend(); ++series) {
    if (series->line && series->points.size() > 1) draw_line(out, *series, x, y);
    if (series->dots || series->points.size() == 1) draw_dots(out, *series, x, y, chart.unit);
  }
  if (named) draw_names(out, chart, y);
}

}  // namespace sluice::report

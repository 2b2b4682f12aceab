#include "corpus/length_chart.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/axis.h"
#include "base/text.h"

namespace sluice::corpus {

using base::coordinate;
using base::human_count;
using base::Markup;
using base::text;

namespace {

constexpr int kBarColumns = 30;

// Sizes of the picture, in pixels.
constexpr int kWidth = 760;
constexpr int kTitle = 76;
constexpr int kPlot = kLengthsHeight;
constexpr int kPanel = kTitle + kPlot + 48;
constexpr int kLeft = 52;
constexpr int kRight = 12;

constexpr const char* kStyle =
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:14px}"
    ".documents{fill:#3b76af}.tokens{fill:#e08a3c}.grid{stroke:#ccc;stroke-width:1}.middle{text-anchor:"
    "middle}"
    ".end{text-anchor:end}@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#555}}";

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(double part) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << part * 100 << " %";
  return out.str();
}

// 2048 -> "2K": a bin's lower edge.
std::string edge(int64_t tokens) {
  if (tokens >= 1 << 20) return text(tokens >> 20, "M");
  if (tokens >= 1 << 10) return text(tokens >> 10, "K");
  return text(tokens);
}

// A bar in eighths of a column: `part` of kBarColumns, and the thinnest bar if `part` is tiny but not 0.
std::string bar(double part) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  auto eighths = static_cast<int>(part * kBarColumns * 8 + 0.5);
  if (part > 0) eighths = std::max(eighths, 1);
  std::string out;
  for (int column = 0; column < eighths / 8; ++column) out += "█";
  return base::padded_right(out + kEighths[eighths % 8], kBarColumns);
}

std::vector<std::string> table_row(const NamedLengths& distribution) {
  const LengthDistribution& lengths = distribution.lengths;
  std::vector<std::string> row = {distribution.name, human_count(lengths.documents()),
                                  human_count(lengths.tokens())};
  if (lengths.empty()) return row;
  row.push_back(human_count(static_cast<int64_t>(lengths.mean() + 0.5)));
  for (const int64_t ppm : {500'000, 900'000, 990'000, 999'000})
    row.push_back(human_count(lengths.percentile(ppm)));
  row.push_back(human_count(lengths.longest()));
  row.push_back(percent(static_cast<double>(lengths.padding_ppm()) / 1e6));
  return row;
}

double highest_share(const LengthDistribution& lengths) {
  double highest = 0;
  for (const LengthBin& bin : lengths.histogram()) {
    highest =
        std::max({highest, share(bin.documents, lengths.documents()), share(bin.tokens, lengths.tokens())});
  }
  return highest;
}

void draw_bar(Markup& out, const char* kind, double x, double width, double height,
              const std::string& title) {
  const auto bar = out.element("rect", {{"class", kind},
                                        {"x", coordinate(x, "%")},
                                        {"y", coordinate(kPlot - height)},
                                        {"width", coordinate(width, "%")},
                                        {"height", coordinate(height)}});
  out.leaf("title", title);
}

void draw_sample(Markup& out, const char* kind, int x, const std::string& title) {
  out.leaf("rect", {{"class", kind}, {"x", text(x)}, {"y", "-21"}, {"width", "10"}, {"height", "10"}});
  out.leaf("text", {{"x", text(x + 15)}, {"y", "-12"}}, title);
}

}  // namespace

std::string lengths_table(const std::vector<NamedLengths>& distributions) {
  std::vector<std::vector<std::string>> rows = {
      {"", "documents", "tokens", "mean", "p50", "p90", "p99", "p99.9", "longest", "padding"}};
  for (const NamedLengths& each : distributions) rows.push_back(table_row(each));
  return base::table_text(rows, "lrrrrrrrrr");
}

std::string lengths_histogram(const NamedLengths& distribution) {
  const LengthDistribution& lengths = distribution.lengths;
  const double highest = std::max(highest_share(lengths), 1e-9);
  std::vector<std::vector<std::string>> rows = {{"length", "documents", "", "tokens", ""}};
  for (const LengthBin& bin : lengths.histogram()) {
    const double documents = share(bin.documents, lengths.documents());
    const double tokens = share(bin.tokens, lengths.tokens());
    rows.push_back({text(edge(bin.from), " - ", edge(bin.to)), percent(documents), bar(documents / highest),
                    percent(tokens), bar(tokens / highest)});
  }
  return base::table_text(rows, "rrlrl");
}

void draw_lengths(Markup& out, const LengthDistribution& lengths) {
  const std::vector<LengthBin> bins = lengths.histogram();
  const double highest = std::max(highest_share(lengths), 1e-9);
  const double step = 100 / static_cast<double>(bins.size());
  const base::Axis percents = base::round_axis(0, 100 * highest, 5);
  const auto height = [&](double part) { return percents.share(100 * part) * kPlot; };
  draw_sample(out, "documents", 0, "share of documents");
  draw_sample(out, "tokens", 140, "share of tokens");
  draw_grid(out, percents, kPlot, " %");
  double x = 0;
  bool even = true;
  for (const LengthBin& bin : bins) {
    const double documents = share(bin.documents, lengths.documents());
    const double tokens = share(bin.tokens, lengths.tokens());
    const std::string range = text(human_count(bin.from), " to ", human_count(bin.to - 1), " tokens: ");
    draw_bar(out, "documents", x + step * 0.1, step * 0.4, height(documents),
             text(range, human_count(bin.documents), " documents (", percent(documents), ")"));
    draw_bar(out, "tokens", x + step * 0.5, step * 0.4, height(tokens),
             text(range, human_count(bin.tokens), " tokens (", percent(tokens), ")"));
    out.leaf("text",
             {{"class", even ? "tick middle" : "tick middle odd"},
              {"x", coordinate(x + step / 2, "%")},
              {"y", text(kPlot + 16)}},
             edge(bin.from));
    even = !even;
    x += step;
  }
  out.leaf("text", {{"class", "tick middle"}, {"x", "50%"}, {"y", text(kPlot + 34)}},
           "document length in tokens, from");
}

std::string lengths_svg(const std::vector<NamedLengths>& distributions) {
  Markup out;
  const int height = kPanel * static_cast<int>(distributions.size());
  {
    const auto svg = out.element("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                                         {"width", text(kWidth)},
                                         {"height", text(height)},
                                         {"viewBox", text("0 0 ", kWidth, " ", height)}});
    out.leaf("style", kStyle);
    int top = 0;
    for (const auto& [name, lengths] : distributions) {
      out.leaf("text", {{"class", "title"}, {"x", text(kLeft)}, {"y", text(top + 18)}}, name);
      out.leaf("text", {{"x", text(kLeft)}, {"y", text(top + 38)}},
               text(human_count(lengths.documents()), " documents, ", human_count(lengths.tokens()),
                    " tokens, median ", human_count(lengths.percentile(500'000)), ", longest ",
                    human_count(lengths.longest())));
      const auto panel = out.element("svg", {{"x", text(kLeft)},
                                             {"y", text(top + kTitle)},
                                             {"width", text(kWidth - kLeft - kRight)},
                                             {"height", text(kPlot)},
                                             {"overflow", "visible"}});
      draw_lengths(out, lengths);
      top += kPanel;
    }
  }
  return out.bytes() + "\n";
}

}  // namespace sluice::corpus

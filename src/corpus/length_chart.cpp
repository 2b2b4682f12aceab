#include "corpus/length_chart.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/text.h"

namespace sluice::corpus {

using base::human_count;
using base::text;

namespace {

constexpr int kBarColumns = 30;

// Sizes of the picture, in pixels.
constexpr int kWidth = 760;
constexpr int kTitle = 44;
constexpr int kPlot = 200;
constexpr int kPanel = kTitle + kPlot + 48;
constexpr int kLeft = 48;
constexpr int kRight = 12;

constexpr const char* kStyle =
    "<style>text{font:12px system-ui,sans-serif;fill:#333}.t{font-weight:600;font-size:14px}"
    ".d{fill:#3b76af}.k{fill:#e08a3c}.g{stroke:#ccc;stroke-width:1}.m{text-anchor:middle}.e{text-anchor:end}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#555}}</style>\n";

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

// A bar of eighths of a column, `part` of kBarColumns long and the thinnest one where that is not 0.
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

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

double highest_share(const LengthDistribution& lengths) {
  double highest = 0;
  for (const LengthBin& bin : lengths.histogram()) {
    highest =
        std::max({highest, share(bin.documents, lengths.documents()), share(bin.tokens, lengths.tokens())});
  }
  return highest;
}

void draw_bar(std::ostringstream& out, const char* kind, double x, double width, double height, int floor,
              const std::string& title) {
  out << "<rect class=\"" << kind << "\" x=\"" << x << "\" y=\"" << floor - height << "\" width=\"" << width
      << "\" height=\"" << height << "\"><title>" << title << "</title></rect>\n";
}

void draw_frame(std::ostringstream& out, const NamedLengths& distribution, double highest, int top) {
  const LengthDistribution& lengths = distribution.lengths;
  out << "<text class=\"t\" x=\"" << kLeft << "\" y=\"" << top + 18 << "\">" << escaped(distribution.name)
      << ": " << human_count(lengths.documents()) << " documents, " << human_count(lengths.tokens())
      << " tokens, median " << human_count(lengths.percentile(500'000)) << ", longest "
      << human_count(lengths.longest()) << "</text>\n";
  out << "<rect class=\"d\" x=\"" << kLeft << "\" y=\"" << top + 27
      << "\" width=\"10\" height=\"10\"/><text x=\"" << kLeft + 15 << "\" y=\"" << top + 36
      << "\">share of documents</text><rect class=\"k\" x=\"" << kLeft + 140 << "\" y=\"" << top + 27
      << "\" width=\"10\" height=\"10\"/><text x=\"" << kLeft + 155 << "\" y=\"" << top + 36
      << "\">share of tokens</text>\n";
  for (int line = 0; line <= 4; ++line) {
    const int y = top + kTitle + kPlot - line * kPlot / 4;
    out << "<line class=\"g\" x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << y
        << "\" y2=\"" << y << "\"/><text class=\"e\" x=\"" << kLeft - 4 << "\" y=\"" << y + 4 << "\">"
        << percent(highest * line / 4) << "</text>\n";
  }
}

void draw_panel(std::ostringstream& out, const NamedLengths& distribution, int top) {
  const LengthDistribution& lengths = distribution.lengths;
  const std::vector<LengthBin> bins = lengths.histogram();
  const double highest = std::max(highest_share(lengths), 1e-9);
  const double step = static_cast<double>(kWidth - kLeft - kRight) / static_cast<double>(bins.size());
  const int floor = top + kTitle + kPlot;
  draw_frame(out, distribution, highest, top);
  double x = kLeft;
  for (const LengthBin& bin : bins) {
    const double documents = share(bin.documents, lengths.documents());
    const double tokens = share(bin.tokens, lengths.tokens());
    const std::string range = text(human_count(bin.from), " to ", human_count(bin.to - 1), " tokens: ");
    draw_bar(out, "d", x + step * 0.1, step * 0.4, documents / highest * kPlot, floor,
             text(range, human_count(bin.documents), " documents (", percent(documents), ")"));
    draw_bar(out, "k", x + step * 0.5, step * 0.4, tokens / highest * kPlot, floor,
             text(range, human_count(bin.tokens), " tokens (", percent(tokens), ")"));
    out << "<text class=\"m\" x=\"" << x + step / 2 << "\" y=\"" << floor + 16 << "\">" << edge(bin.from)
        << "</text>\n";
    x += step;
  }
  out << "<text class=\"m\" x=\"" << (kLeft + kWidth - kRight) / 2 << "\" y=\"" << floor + 34
      << "\">document length in tokens, from</text>\n";
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

std::string lengths_svg(const std::vector<NamedLengths>& distributions) {
  std::ostringstream out;
  const int height = kPanel * static_cast<int>(distributions.size());
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << height
      << "\" viewBox=\"0 0 " << kWidth << " " << height << "\">\n"
      << kStyle;
  int top = 0;
  for (const NamedLengths& each : distributions) {
    draw_panel(out, each, top);
    top += kPanel;
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace sluice::corpus

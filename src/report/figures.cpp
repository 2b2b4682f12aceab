#include "report/figures.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::report {

using base::Markup;
using base::text;

namespace {

constexpr size_t kSystemStyles = 14;  // in style.css; no study compares more systems

std::string cell_class(char letter) { return letter == 'r' ? "number" : letter == 'm' ? "code" : "words"; }

}  // namespace

std::string system_style(size_t index) { return text("s", index % kSystemStyles); }

std::string system_style(const RunData& data, const std::string& name) {
  for (size_t i = 0; i < data.systems.size(); ++i) {
    if (data.systems[i].name == name) return system_style(i);
  }
  return system_style(0);
}

Markup::Element section(Markup& out, const std::string& id, const std::string& heading) {
  Markup::Element element = out.element("section", {{"id", id}});
  out.leaf("h2", heading);
  return element;
}

void draw_table(Markup& out, const Table& table) {
  const auto scroll = out.element("div", {{"class", "scroll"}});
  const auto whole = out.element("table");
  {
    const auto head = out.element("thead");
    const auto row = out.element("tr");
    for (size_t i = 0; i < table.head.size(); ++i) {
      out.leaf("th",
               {{"scope", "col"}, {"class", cell_class(table.letters[i] == 'm' ? 'l' : table.letters[i])}},
               table.head[i]);
    }
  }
  const auto body = out.element("tbody");
  for (const std::vector<std::string>& cells : table.rows) {
    SLUICE_ASSERT(cells.size() == table.letters.size(), "a row has other columns than its table");
    const auto row = out.element("tr");
    out.leaf("th", {{"scope", "row"}, {"class", cell_class(table.letters[0])}}, cells[0]);
    for (size_t i = 1; i < cells.size(); ++i)
      out.leaf("td", {{"class", cell_class(table.letters[i])}, {"data-head", table.head[i]}}, cells[i]);
  }
}

}  // namespace sluice::report

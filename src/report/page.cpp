#include "report/page.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "report/embedded.h"
#include "report/figures.h"
#include "report/numbers.h"
#include "report/run_summary.h"

namespace sluice::report {

using base::Markup;
using base::text;

namespace {

const std::string& page_file(const std::string& name) {
  const auto& files = page_files();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  SLUICE_ASSERT(found != files.end(), name + " is not embedded");
  return found->content;
}

void draw_head(Markup& out, const RunData& data) {
  const auto head = out.element("head");
  out.leaf("meta", {{"charset", "utf-8"}});
  out.leaf("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.leaf("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  out.leaf("title", "Sluice: " + data.title);
  const auto style = out.element("style");
  out.raw(page_file("style"));
}

// Hatches, so that colour alone distinguishes no share.
void draw_patterns(Markup& out) {
  const auto svg =
      out.element("svg", {{"width", "0"}, {"height", "0"}, {"aria-hidden", "true"}, {"class", "patterns"}});
  const auto definitions = out.element("defs");
  for (const std::string name : {"bubble", "idle", "between"}) {
    const auto pattern =
        out.element("pattern", {{"id", "hatch-" + name},
                                {"width", "6"},
                                {"height", "6"},
                                {"patternUnits", "userSpaceOnUse"},
                                {"patternTransform", name == "between" ? "rotate(-45)" : "rotate(45)"}});
    out.leaf("rect", {{"class", "hatch-ground"}, {"width", "6"}, {"height", "6"}});
    if (name != "idle") out.leaf("rect", {{"class", "hatch-" + name}, {"width", "2.5"}, {"height", "6"}});
  }
}

struct Tile {
  std::string value;
  std::string label;
};

std::vector<Tile> tiles_of(const RunData& data) {
  const SystemRun& own = data.systems.front();
  const SystemSummary summary = summary_of(own);
  if (summary.steps == 0) return {};
  std::vector<Tile> tiles = {
      {shown_duration(summary.mean_step_ns),
       text("a step, ± ", shown_duration(summary.std_step_ns), " over ", counted(summary.steps, "step"))},
      {base::human_count(static_cast<int64_t>(summary.tokens_per_s + 0.5)), "tokens/s"}};
  if (summary.mfu) tiles.push_back({shown_percent(*summary.mfu), "MFU"});
  if (const size_t best = best_other(data); best > 0) {
    tiles.push_back(
        {shown_ratio(speed_up(own, data.systems[best]).mean), "the speed of " + data.systems[best].title});
  }
  if (summary.shares.total_ns() > 0) {
    tiles.push_back(
        {shown_percent(share_of(summary.shares.compute_ns, summary.shares)), "of the ranks' time computes"});
    tiles.push_back(
        {shown_percent(share_of(summary.shares.pull_push_ns, summary.shares)), "waits for pull or push"});
  }
  if (const double error = prediction_error(own).error; error >= 0)
    tiles.push_back({shown_percent(error), "prediction error, median"});
  if (summary.peak_bytes > 0) {
    tiles.push_back({shown_bytes(summary.peak_bytes),
                     data.device_bytes > 0
                         ? text("of ", shown_bytes(data.device_bytes), " on the fullest rank")
                         : "on the fullest rank"});
  }
  return tiles;
}

void draw_header(Markup& out, const RunData& data) {
  const auto header = out.element("header");
  {
    const auto line = out.element("p", {{"class", "kicker"}});
    out.leaf("span", {{"class", "brand"}}, "Sluice");
    out.leaf("span", {{"class", "badge"}}, data.simulated ? "simulated" : "measured");
    out.text(data.title);
  }
  const Verdict verdict = verdict_of(data);
  out.leaf("h1", verdict.headline);
  if (!verdict.detail.empty()) out.leaf("p", {{"class", "detail"}}, verdict.detail);
  const auto list = out.element("dl", {{"class", "tiles"}});
  for (const Tile& tile : tiles_of(data)) {
    const auto group = out.element("div");
    out.leaf("dt", tile.label);
    out.leaf("dd", tile.value);
  }
}

}  // namespace

void draw_facts(Markup& out, const RunData& data) {
  const auto whole = section(out, "facts", "What was run");
  {
    const auto table = out.element("table", {{"class", "facts"}});
    const auto body = out.element("tbody");
    for (const auto& [name, value] : data.facts) {
      const auto row = out.element("tr");
      out.leaf("th", {{"scope", "row"}}, name);
      out.leaf("td", value);
    }
  }
  out.leaf("h3", "What kind of figures these are");
  const auto list = out.element("ul", {{"class", "kinds"}});
  const auto kind = [&](const std::string& name, const std::string& meaning) {
    const auto item = out.element("li");
    out.leaf("b", name);
    out.text(" " + meaning);
  };
  if (data.simulated) {
    kind("Simulated:",
         "step times, timelines and shares. Each step's program is timed by a clock that knows every "
         "dependency, transfer and stream; the durations of its parts come from the calibration.");
    kind("Computed:", "memory, by each rank's own order of work.");
  } else {
    kind("Measured:", "step times, loss, memory, and timelines that say so.");
    kind("Predicted:", "before the step runs, by the clock that also orders the work.");
  }
  kind("Proved:", "the bound that plans are compared with: no plan of the same candidates is faster.");
  for (const std::string& note : data.notes) kind("Missing:", note);
}

std::string report_page(const RunData& data) {
  SLUICE_ASSERT(!data.systems.empty(), "a report of no system");
  Markup out;
  out.raw("<!DOCTYPE html>\n");
  {
    const auto html = out.element("html", {{"lang", "en"}});
    draw_head(out, data);
    const auto body = out.element("body");
    draw_patterns(out);
    const auto main = out.element("main");
    draw_header(out, data);
    draw_speed(out, data);
    draw_time_shares(out, data);
    draw_timelines(out, data);
    draw_step_times(out, data);
    draw_slowdowns(out, data);
    draw_learning(out, data);
    draw_acts(out, data);
    draw_loss(out, data);
    draw_strategies(out, data);
    draw_gaps(out, data);
    draw_lengths(out, data);
    draw_memory(out, data);
    draw_facts(out, data);
    const auto script = out.element("script");
    out.raw(page_file("timeline"));
  }
  return out.bytes() + "\n";
}

}  // namespace sluice::report

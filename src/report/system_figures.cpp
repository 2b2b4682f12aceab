// Systems side by side: step times with their spread, the shares of the time, memory.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "report/figures.h"
#include "report/numbers.h"
#include "report/run_summary.h"
#include "strategy/readable.h"

namespace sluice::report {

using base::coordinate;
using base::Markup;
using base::text;

namespace {

struct ShareKind {
  const char* style;
  const char* title;
  const char* meaning;
  int64_t TimeShares::*ns;
};
constexpr std::array<ShareKind, 8> kShareKinds = {{
    {"compute", "compute", "matrix products, attention, and what goes with them", &TimeShares::compute_ns},
    {"ring", "exchange", "attention waiting for what lanes exchange for it", &TimeShares::cp_exchange_ns},
    {"gather", "gather", "waiting for parameters that lanes share, and for sums of their gradients",
     &TimeShares::fsdp_ns},
    {"link", "pull and push", "waiting for parameters or gradients: what overlap does not hide",
     &TimeShares::pull_push_ns},
    {"update", "update", "scalars and optimiser", &TimeShares::update_ns},
    {"bubble", "bubble", "waiting for other stages of the own pipeline", &TimeShares::bubble_ns},
    {"idle", "idle", "without work, or done before other pipelines", &TimeShares::idle_ns},
    {"between", "switching", "moving from one layout to the next", &TimeShares::strategy_switch_ns},
}};

// A bar of a chart whose rows share one scale.
struct NamedShares {
  std::string title;
  std::string under;  // below the title
  TimeShares shares;
  double length_ns = 0;  // a step's
  std::string under_length = {};
};

void draw_name(Markup& out, const std::string& title, const std::string& under) {
  const auto name = out.element("div", {{"class", "name"}});
  out.leaf("b", title);
  if (!under.empty()) out.leaf("small", under);
}

void draw_value(Markup& out, const std::string& value, const std::string& under) {
  const auto cell = out.element("div", {{"class", "value"}});
  out.leaf("b", value);
  if (!under.empty()) out.leaf("small", under);
}

void draw_rect(Markup& out, const std::string& style, double from, double width, int top, int height) {
  out.leaf("rect", {{"class", style},
                    {"x", coordinate(from, "%")},
                    {"y", text(top)},
                    {"width", coordinate(width, "%")},
                    {"height", text(height)}});
}

// x in percent of the picture, y in pixels.
void draw_line(Markup& out, double x1, double x2, double y1, double y2) {
  out.leaf("line", {{"class", "whisker"},
                    {"x1", coordinate(x1, "%")},
                    {"x2", coordinate(x2, "%")},
                    {"y1", coordinate(y1)},
                    {"y2", coordinate(y2)}});
}

void draw_whisker(Markup& out, double from, double to) {
  draw_line(out, from, to, 14, 14);
  draw_line(out, from, from, 9, 19);
  draw_line(out, to, to, 9, 19);
}

// Whether the mean step differs if all-gathers between nodes take their measured time.
bool differs_as_measured(const SystemRun& run) {
  return run.measured_passes_step_ns > 0 && run.measured_passes_step_ns != summary_of(run).mean_step_ns;
}

// The mean step with measured all-gathers; "" if it is the same.
std::string as_measured(const SystemRun& run) {
  if (!differs_as_measured(run)) return "";
  return text(shown_duration(run.measured_passes_step_ns),
              " if gathers between nodes cost what FlexSP measured");
}

bool any_differs_as_measured(const RunData& data) {
  return std::ranges::any_of(data.systems, differs_as_measured);
}

constexpr const char* kAssumptions =
    " Gathers between nodes overlap with computation as the clock predicts; as measured, each of them costs "
    "what "
    "FlexSP measured.";

void draw_speed_row(Markup& out, const RunData& data, size_t index, double longest_ns) {
  const SystemRun& run = data.systems[index];
  const auto row = out.element("div", {{"class", "row"}});
  draw_name(out, run.title, strategy::readable_text(run.configuration));
  if (run.steps.empty()) {
    out.leaf("p", {{"class", "cannot"}}, "cannot run this: " + run.infeasible);
    draw_value(out, "–", "");
    return;
  }
  const SystemSummary summary = summary_of(run);
  const auto percent = [&](int64_t ns) { return 100 * static_cast<double>(ns) / longest_ns; };
  {
    const auto bar =
        out.element("svg", {{"class", "bar"},
                            {"role", "img"},
                            {"aria-label", text(run.title, ": ", shown_duration(summary.mean_step_ns),
                                                " a step, from ", shown_duration(summary.least_step_ns),
                                                " to ", shown_duration(summary.most_step_ns))}});
    draw_rect(out, "fill " + system_style(index), 0, percent(summary.mean_step_ns), 3, 22);
    if (summary.steps > 1) draw_whisker(out, percent(summary.least_step_ns), percent(summary.most_step_ns));
  }
  const double ratio = speed_up(data.systems.front(), run).mean;
  const std::string beside_ours = index > 0 && ratio > 0 ? shown_ratio(ratio) : "";
  const std::string measured = as_measured(run);
  draw_value(out, shown_duration(summary.mean_step_ns),
             text(beside_ours, !beside_ours.empty() && !measured.empty() ? "; " : "", measured));
}

Table speed_table(const RunData& data) {
  Table table{{"System", "Mean step", "± over steps", "Least", "Most", "Tokens/s", "vs Sluice", "By step"},
              {},
              "lrrrrrrr"};
  const bool has_measured = any_differs_as_measured(data);
  if (has_measured) {
    table.head.push_back("vs Sluice if gathers between nodes cost what FlexSP measured");
    table.letters += "r";
  }
  for (size_t i = 0; i < data.systems.size(); ++i) {
    const SystemRun& run = data.systems[i];
    if (run.steps.empty()) continue;
    const SystemSummary summary = summary_of(run);
    const SpeedUp ratio = speed_up(data.systems.front(), run);
    table.rows.push_back(
        {run.title, shown_duration(summary.mean_step_ns), shown_duration(summary.std_step_ns),
         shown_duration(summary.least_step_ns), shown_duration(summary.most_step_ns),
         base::human_count(static_cast<int64_t>(summary.tokens_per_s + 0.5)),
         ratio.mean > 0 ? shown_ratio(ratio.mean) : "–",
         ratio.mean > 0 && i > 0 ? text(shown_ratio(ratio.least), " – ", shown_ratio(ratio.most)) : "–"});
    if (has_measured) {
      const double first_ns = static_cast<double>(data.systems.front().measured_passes_step_ns);
      const double ns = static_cast<double>(run.measured_passes_step_ns);
      table.rows.back().push_back(ns > 0 && first_ns > 0 ? shown_ratio(ns / first_ns) : "–");
    }
  }
  return table;
}

// A simulation's systems, or a training run's traced steps, measured and predicted.
std::vector<NamedShares> all_shares(const RunData& data) {
  std::vector<NamedShares> all;
  if (data.simulated) {
    for (const SystemRun& run : data.systems) {
      const SystemSummary summary = summary_of(run);
      if (summary.shares.total_ns() == 0) continue;
      all.push_back({run.title, strategy::readable_text(run.configuration), summary.shares,
                     static_cast<double>(summary.mean_step_ns), as_measured(run)});
    }
    return all;
  }
  for (const Timeline& timeline : data.timelines) {
    if (timeline.records.empty() || data.ranks == 0) continue;
    const TimeShares shares = time_shares(timeline.records, data.ranks);
    all.push_back({timeline.title, "", shares, static_cast<double>(shares.total_ns()) / data.ranks});
  }
  return all;
}

void draw_shares_row(Markup& out, const NamedShares& named, double longest_ns) {
  const auto row = out.element("div", {{"class", "row"}});
  draw_name(out, named.title, named.under);
  const double length = 100 * named.length_ns / longest_ns;
  {
    const auto bar = out.element(
        "svg", {{"class", "bar"}, {"role", "img"}, {"aria-label", named.title + ": " + named.under}});
    double from = 0;
    for (const ShareKind& kind : kShareKinds) {
      const double share = share_of(named.shares.*kind.ns, named.shares);
      if (share <= 0) continue;
      const double width = length * share;
      {
        const auto part = out.element("g");
        out.leaf("title", text(kind.title, ": ", shown_percent(share), ", ",
                               shown_duration(static_cast<int64_t>(share * named.length_ns)), " of a step"));
        draw_rect(out, text("fill ", kind.style), from, width, 3, 22);
      }
      if (width > 9) {
        out.leaf("text",
                 {{"class", text(width < 14 ? "inside tight on-" : "inside on-", kind.style)},
                  {"x", coordinate(from + width / 2, "%")},
                  {"y", "18"}},
                 shown_percent(share));
      }
      from += width;
    }
  }
  draw_value(out, shown_duration(static_cast<int64_t>(named.length_ns)), named.under_length);
}

void draw_shares_legend(Markup& out, const std::vector<NamedShares>& all) {
  const auto legend = out.element("ul", {{"class", "legend"}});
  for (const ShareKind& kind : kShareKinds) {
    const bool used =
        std::ranges::any_of(all, [&](const NamedShares& named) { return named.shares.*kind.ns > 0; });
    if (!used) continue;
    const auto item = out.element("li", {{"title", kind.meaning}});
    {
      const auto sample = out.element(
          "svg", {{"class", "sample"}, {"width", "14"}, {"height", "14"}, {"aria-hidden", "true"}});
      out.leaf("rect", {{"class", text("fill ", kind.style)}, {"width", "14"}, {"height", "14"}});
    }
    out.text(kind.title);
  }
}

Table shares_table(const std::vector<NamedShares>& all) {
  Table table{{"Share of the ranks' time"}, {}, "l"};
  for (const ShareKind& kind : kShareKinds) {
    table.head.emplace_back(kind.title);
    table.letters += 'r';
  }
  for (const NamedShares& named : all) {
    std::vector<std::string> row = {named.title};
    for (const ShareKind& kind : kShareKinds)
      row.push_back(shown_percent(share_of(named.shares.*kind.ns, named.shares)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// The fullest rank of each system against the device; a line marks the predicted peak.
void draw_peaks(Markup& out, const RunData& data) {
  std::vector<SystemSummary> summaries;
  int64_t most_bytes = data.device_bytes;
  for (const SystemRun& run : data.systems) {
    const SystemSummary& summary = summaries.emplace_back(summary_of(run));
    most_bytes = std::max({most_bytes, summary.peak_bytes, summary.predicted_peak_bytes});
  }
  const auto rows = out.element("div", {{"class", "rows"}});
  for (size_t i = 0; i < data.systems.size(); ++i) {
    const int64_t peak_bytes = summaries[i].peak_bytes;
    const int64_t predicted_bytes = summaries[i].predicted_peak_bytes;
    if (peak_bytes == 0) continue;
    const auto row = out.element("div", {{"class", "row"}});
    draw_name(out, data.systems[i].title, "");
    const auto percent = [&](int64_t bytes) {
      return 100 * static_cast<double>(bytes) / static_cast<double>(most_bytes);
    };
    {
      const auto bar =
          out.element("svg", {{"class", "bar"},
                              {"role", "img"},
                              {"aria-label", text(data.systems[i].title, ": ", shown_bytes(peak_bytes))}});
      if (data.device_bytes > 0) draw_rect(out, "track", 0, percent(data.device_bytes), 3, 22);
      draw_rect(out, "fill " + system_style(i), 0, percent(peak_bytes), 3, 22);
      if (predicted_bytes > 0) draw_line(out, percent(predicted_bytes), percent(predicted_bytes), 0, 28);
    }
    draw_value(out, shown_bytes(peak_bytes),
               data.device_bytes > 0
                   ? shown_percent(static_cast<double>(peak_bytes) / static_cast<double>(data.device_bytes))
                   : "");
  }
}

// The prediction of a measured step, rank by rank; empty: there is none.
std::vector<int64_t> predicted_peaks(const RunData& data, const Timeline& measured) {
  if (!measured.measured) return {};
  for (const Timeline& other : data.timelines) {
    if (other.step == measured.step && !other.measured &&
        other.peak_bytes.size() == measured.peak_bytes.size())
      return other.peak_bytes;
  }
  return {};
}

// Whether the timeline appears only as lines on the bars of the same step, measured.
bool is_prediction_of_a_measured(const RunData& data, const Timeline& timeline) {
  return std::ranges::any_of(data.timelines, [&](const Timeline& other) {
    return !timeline.measured && other.step == timeline.step && !predicted_peaks(data, other).empty();
  });
}

// A bar for each rank of a step, or for the fullest of several neighbours, with a line at the predicted
// peak.
void draw_ranks(Markup& out, const RunData& data, const Timeline& timeline) {
  constexpr size_t kMostBars = 128;
  constexpr int kHeight = 72;
  const std::vector<int64_t>& peaks = timeline.peak_bytes;
  const std::vector<int64_t> predicted = predicted_peaks(data, timeline);
  const size_t each = (peaks.size() + kMostBars - 1) / kMostBars;
  const size_t bars = (peaks.size() + each - 1) / each;
  int64_t most_bytes = std::max({int64_t{1}, data.device_bytes, *std::ranges::max_element(peaks)});
  if (!predicted.empty()) most_bytes = std::max(most_bytes, *std::ranges::max_element(predicted));
  const auto height_of = [&](int64_t bytes) {
    return kHeight * static_cast<double>(bytes) / static_cast<double>(most_bytes);
  };
  const auto fullest = [&](const std::vector<int64_t>& ranks, size_t bar) {
    const auto first = ranks.begin() + static_cast<ptrdiff_t>(bar * each);
    return *std::max_element(
        first, ranks.begin() + static_cast<ptrdiff_t>(std::min(ranks.size(), (bar + 1) * each)));
  };
  out.leaf(
      "p", {{"class", "caption"}},
      text(timeline.title, each > 1 ? text(": a bar is the fullest of ", each, " ranks") : ": a bar a rank",
           predicted.empty() ? "" : "; lines: predicted"));
  const auto plot = out.element(
      "svg", {{"class", "columns"}, {"role", "img"}, {"aria-label", "Memory by rank: " + timeline.title}});
  for (size_t bar = 0; bar < bars; ++bar) {
    const int64_t bytes = fullest(peaks, bar);
    const int64_t predicted_bytes = predicted.empty() ? 0 : fullest(predicted, bar);
    const double width = 100 / static_cast<double>(bars);
    const double left = width * (static_cast<double>(bar) + 0.08);
    {
      const auto rect = out.element("rect", {{"class", "fill " + system_style(data, timeline.system)},
                                             {"x", coordinate(left, "%")},
                                             {"y", coordinate(kHeight - height_of(bytes))},
                                             {"width", coordinate(width * 0.84, "%")},
                                             {"height", coordinate(height_of(bytes))}});
      const size_t last_rank = std::min(peaks.size(), (bar + 1) * each) - 1;
      out.leaf("title", text(each > 1 ? text("ranks ", bar * each, "–", last_rank) : text("rank ", bar), ": ",
                             shown_bytes(bytes),
                             predicted.empty() ? "" : ", predicted " + shown_bytes(predicted_bytes)));
    }
    const double y = kHeight - height_of(predicted_bytes);
    if (predicted_bytes > 0) draw_line(out, left, left + width * 0.84, y, y);
  }
  if (data.device_bytes > 0) {
    const double y = kHeight - height_of(data.device_bytes);
    out.leaf("line",
             {{"class", "limit"}, {"x1", "0"}, {"x2", "100%"}, {"y1", coordinate(y)}, {"y2", coordinate(y)}});
    out.leaf("text", {{"class", "tick end"}, {"x", "100%"}, {"y", coordinate(y - 5)}},
             "device: " + shown_bytes(data.device_bytes));
  }
}

}  // namespace

void draw_speed(Markup& out, const RunData& data) {
  if (data.systems.size() < 2) return;
  const auto whole = section(out, "speed", "Step time");
  out.leaf("p", {{"class", "lead"}},
           text("Bars are the mean step, lines reach from the least to the most; shorter is better. All "
                "systems ran "
                "the same batches.",
                any_differs_as_measured(data) ? kAssumptions : ""));
  double longest_ns = 1;
  for (const SystemRun& run : data.systems)
    longest_ns = std::max(longest_ns, static_cast<double>(summary_of(run).most_step_ns));
  {
    const auto rows = out.element("div", {{"class", "rows"}});
    for (size_t i = 0; i < data.systems.size(); ++i) draw_speed_row(out, data, i, longest_ns);
  }
  draw_table(out, speed_table(data));
}

void draw_time_shares(Markup& out, const RunData& data) {
  const std::vector<NamedShares> all = all_shares(data);
  if (all.empty()) return;
  const auto whole = section(out, "time", "Where the time goes");
  out.leaf("p", {{"class", "lead"}},
           text(data.simulated ? "A bar is as long as the mean step, cut by what all ranks do in it."
                               : "A bar is as long as the step, cut by what all ranks do in it.",
                any_differs_as_measured(data) ? kAssumptions : ""));
  double longest_ns = 1;
  for (const NamedShares& named : all) longest_ns = std::max(longest_ns, named.length_ns);
  draw_shares_legend(out, all);
  {
    const auto rows = out.element("div", {{"class", "rows"}});
    for (const NamedShares& named : all) draw_shares_row(out, named, longest_ns);
  }
  draw_table(out, shares_table(all));
}

void draw_memory(Markup& out, const RunData& data) {
  const bool any =
      std::ranges::any_of(data.systems, [](const SystemRun& run) { return summary_of(run).peak_bytes > 0; });
  if (!any) return;
  const auto whole = section(out, "memory", "Memory");
  const int64_t predicted_bytes = summary_of(data.systems.front()).predicted_peak_bytes;
  out.leaf("p", {{"class", "lead"}},
           text("What the fullest rank holds",
                data.device_bytes > 0
                    ? text(", against the ", shown_bytes(data.device_bytes), " that a rank may use.")
                    : ".",
                predicted_bytes > 0
                    ? text(" The line stands where it was predicted, at ", shown_bytes(predicted_bytes), ".")
                    : ""));
  draw_peaks(out, data);
  for (const Timeline& timeline : data.timelines) {
    if (!timeline.peak_bytes.empty() && !is_prediction_of_a_measured(data, timeline))
      draw_ranks(out, data, timeline);
  }
}

}  // namespace sluice::report

// A step, rank by rank. Ranks that do the same at the same time share a row. If there are too many rows, some
// are left out; if there are too many rectangles, neighbours that are too narrow to see are joined. The page
// mentions both.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/axis.h"
#include "base/text.h"
#include "graph/fsdp_moves.h"
#include "report/figures.h"
#include "report/numbers.h"

namespace sluice::report {

using base::coordinate;
using base::Markup;
using base::text;
using graph::NodeKind;
using graph::TraceRecord;

namespace {

constexpr size_t kMostRows = 96;
constexpr size_t kMostRectangles = 12'000;
constexpr double kWidth = 10'000;  // width of the drawing, in its own units

enum class Activity : uint8_t {
  kForward,
  kBackward,
  kWeight,
  kUpdate,
  kPull,
  kPush,
  kTransfer,
  kGather,
  kNone
};
struct ActivityLook {
  const char* style;
  const char* title;
  bool compute;
};
constexpr std::array<ActivityLook, 8> kLooks = {{{"forward", "forward", true},
                                                 {"backward", "backward", true},
                                                 {"weight", "weight gradient", true},
                                                 {"finish", "scalars and update", true},
                                                 {"pull", "pull", false},
                                                 {"push", "push", false},
                                                 {"transfer", "between stages", false},
                                                 {"gather", "gathers and scatters", false}}};

Activity activity_of(const std::string& category) {
  static const std::map<std::string, Activity> activities = {
      {graph::name_of(NodeKind::kForward), Activity::kForward},
      {graph::name_of(NodeKind::kBackward), Activity::kBackward},
      {graph::name_of(NodeKind::kBackwardInput), Activity::kBackward},
      {graph::name_of(NodeKind::kBackwardWeight), Activity::kWeight},
      {graph::name_of(NodeKind::kUpdate), Activity::kUpdate},
      {graph::name_of(NodeKind::kReduceScalars), Activity::kUpdate},
      {graph::name_of(NodeKind::kPullInter), Activity::kPull},
      {graph::name_of(NodeKind::kPullIntra), Activity::kPull},
      {graph::name_of(NodeKind::kPushInter), Activity::kPush},
      {graph::name_of(NodeKind::kPushIntra), Activity::kPush},
      {graph::name_of(NodeKind::kSendActivation), Activity::kTransfer},
      {graph::name_of(NodeKind::kSendGradient), Activity::kTransfer},
      {graph::kGather, Activity::kGather},
      {graph::kScatter, Activity::kGather},
  };
  const auto found = activities.find(category);
  return found == activities.end() ? Activity::kNone : found->second;
}

const ActivityLook& look(Activity activity) { return kLooks[static_cast<size_t>(activity)]; }

struct Box {
  Activity activity = Activity::kNone;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t joined = 1;                   // boxes that this one stands for
  const TraceRecord* record = nullptr;  // the first of them
  auto same() const { return std::tuple(activity, start_ns, end_ns); }
};

struct Row {
  std::vector<int> ranks;
  std::vector<Box> boxes;  // ascending by start
};

struct Drawing {
  std::vector<Row> rows;
  size_t all_rows = 0;  // before some were left out
  bool joined = false;
};

std::vector<Row> rows_by_rank(const Timeline& timeline) {
  std::map<int, Row> by_rank;
  for (const TraceRecord& record : timeline.records) {
    const Activity activity = activity_of(record.category);
    if (activity == Activity::kNone) continue;
    by_rank[record.rank].boxes.push_back({activity, record.start_ns, record.end_ns, 1, &record});
  }
  std::vector<Row> rows;
  for (auto& [rank, row] : by_rank) {
    row.ranks = {rank};
    std::ranges::stable_sort(row.boxes, {}, &Box::start_ns);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Neighbouring ranks that do the same at the same time become one row: those of a tensor-parallel group.
void merge_equal_rows(std::vector<Row>& rows) {
  std::vector<Row> merged;
  for (Row& row : rows) {
    const bool same =
        !merged.empty() && std::ranges::equal(merged.back().boxes, row.boxes, {}, &Box::same, &Box::same);
    if (same) {
      merged.back().ranks.push_back(row.ranks.front());
    } else {
      merged.push_back(std::move(row));
    }
  }
  rows = std::move(merged);
}

void sample_rows(Drawing& drawing) {
  drawing.all_rows = drawing.rows.size();
  if (drawing.rows.size() <= kMostRows) return;
  std::vector<Row> kept;
  for (size_t i = 0; i < kMostRows; ++i)
    kept.push_back(std::move(drawing.rows[i * drawing.all_rows / kMostRows]));
  drawing.rows = std::move(kept);
}

// Joins neighbouring boxes of one activity if they and the gaps between them are all narrower than
// `narrow_ns`.
void join_narrow(std::vector<Box>& boxes, int64_t narrow_ns) {
  std::map<Activity, size_t> last;  // by activity: its last box in `joined`
  std::vector<Box> joined;
  for (const Box& box : boxes) {
    const auto before = last.find(box.activity);
    if (before != last.end()) {
      Box& other = joined[before->second];
      const bool narrow = box.end_ns - box.start_ns < narrow_ns && box.start_ns - other.end_ns < narrow_ns;
      if (narrow && (other.joined > 1 || other.end_ns - other.start_ns < narrow_ns)) {
        other.end_ns = std::max(other.end_ns, box.end_ns);
        other.joined += box.joined;
        continue;
      }
    }
    last[box.activity] = joined.size();
    joined.push_back(box);
  }
  boxes = std::move(joined);
}

size_t count_boxes(const std::vector<Row>& rows) {
  size_t count = 0;
  for (const Row& row : rows) count += row.boxes.size();
  return count;
}

Drawing drawing_of(const Timeline& timeline, int64_t span_ns) {
  Drawing drawing{.rows = rows_by_rank(timeline)};
  merge_equal_rows(drawing.rows);
  sample_rows(drawing);
  for (int64_t narrow_ns = std::max<int64_t>(1, span_ns / 4000); count_boxes(drawing.rows) > kMostRectangles;
       narrow_ns *= 2) {
    drawing.joined = true;
    for (Row& row : drawing.rows) join_narrow(row.boxes, narrow_ns);
    if (narrow_ns > span_ns) break;
  }
  return drawing;
}

std::string title_of(const Box& box) {
  const std::string when =
      text(shown_duration(box.end_ns - box.start_ns), " from ", shown_duration(box.start_ns));
  if (box.joined > 1) return text(box.joined, " x ", look(box.activity).title, ": ", when);
  std::string title = text(box.record->label, ": ", when);
  for (const auto& [name, value] : box.record->arguments) {
    if (name == "tokens") title += text(", ", counted(value, "token"));
    if (name == "bytes") title += text(", ", shown_bytes(value));
  }
  return title;
}

std::string row_name(const Row& row) {
  if (row.ranks.size() == 1) return text(row.ranks.front());
  return text(row.ranks.front(), "–", row.ranks.back());
}

double row_height(size_t rows) {
  return rows <= 8 ? 30 : rows <= 16 ? 22 : rows <= 32 ? 15 : rows <= 64 ? 10 : 7;
}

void draw_boxes(Markup& out, const Row& row, double top, double height, int64_t span_ns) {
  for (const bool compute : {true, false}) {
    for (const Box& box : row.boxes) {
      if (look(box.activity).compute != compute) continue;
      const auto x = [&](int64_t ns) {
        return kWidth * static_cast<double>(ns) / static_cast<double>(span_ns);
      };
      const auto rect =
          out.element("rect", {{"class", look(box.activity).style},
                               {"x", coordinate(x(box.start_ns))},
                               {"y", coordinate(compute ? top : top + height * 0.74)},
                               {"width", coordinate(std::max(x(box.end_ns) - x(box.start_ns), 0.01))},
                               {"height", coordinate(compute ? height * 0.68 : height * 0.18)}});
      out.leaf("title", title_of(box));
    }
  }
}

void draw_time_axis(Markup& out, int64_t span_ns) {
  const Unit unit = duration_unit(static_cast<double>(span_ns));
  const base::Axis axis = base::round_axis(0, static_cast<double>(span_ns) / unit.scale, 8);
  const auto ticks = out.element("g", {{"class", "time-axis"}});
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double tick = axis.ticks[i];
    const double at = 100 * tick * unit.scale / static_cast<double>(span_ns);
    if (at > 100) continue;
    const std::string x = coordinate(at, "%");
    out.leaf("line", {{"class", "grid"}, {"x1", x}, {"x2", x}, {"y1", "-4"}, {"y2", "100%"}});
    out.leaf("text", {{"class", i % 2 == 0 ? "tick middle" : "tick middle odd"}, {"x", x}, {"y", "-8"}},
             text(tick_text(axis, tick), tick == 0 ? "" : " " + unit.name));
  }
}

void draw_row_names(Markup& out, const Drawing& drawing, double height) {
  const size_t every = height >= 15 ? 1 : height >= 10 ? 2 : 4;
  for (size_t i = 0; i < drawing.rows.size(); i += every) {
    out.leaf(
        "text",
        {{"class", "tick end"}, {"x", "-8"}, {"y", coordinate((static_cast<double>(i) + 0.34) * height + 4)}},
        row_name(drawing.rows[i]));
  }
}

std::string left_out(const Drawing& drawing) {
  std::vector<std::string> notes;
  if (drawing.rows.size() < drawing.all_rows)
    notes.push_back(text(drawing.rows.size(), " of ", drawing.all_rows, " different rows are shown"));
  if (drawing.joined) notes.push_back("neighbours too narrow to see are joined");
  return notes.empty() ? "" : " (" + base::join(notes, "; ") + ")";
}

void draw_timeline(Markup& out, const Timeline& timeline, int64_t span_ns) {
  const Drawing drawing = drawing_of(timeline, span_ns);
  const double height = row_height(drawing.rows.size());
  const double whole = height * static_cast<double>(drawing.rows.size());
  const auto figure = out.element("figure", {{"class", "timeline"}});
  {
    const auto caption = out.element("figcaption");
    out.leaf("b", timeline.title);
    out.text(left_out(drawing));
  }
  const auto frame = out.element("div", {{"class", "plot"}});
  const auto plot = out.element("svg", {{"role", "img"},
                                        {"aria-label", "Timeline: " + timeline.title},
                                        {"width", "100%"},
                                        {"height", coordinate(whole)},
                                        {"data-span-ns", text(span_ns)}});
  draw_time_axis(out, span_ns);
  draw_row_names(out, drawing, height);
  const auto lanes = out.element("svg", {{"class", "lanes"},
                                         {"viewBox", text("0 0 ", kWidth, " ", coordinate(whole))},
                                         {"preserveAspectRatio", "none"},
                                         {"width", "100%"},
                                         {"height", coordinate(whole)}});
  for (size_t i = 0; i < drawing.rows.size(); ++i)
    draw_boxes(out, drawing.rows[i], static_cast<double>(i) * height, height, span_ns);
}

void draw_legend(Markup& out, const RunData& data) {
  std::set<Activity> used;
  for (const Timeline& timeline : data.timelines) {
    for (const TraceRecord& record : timeline.records) used.insert(activity_of(record.category));
  }
  used.erase(Activity::kNone);
  const auto legend = out.element("ul", {{"class", "legend"}});
  for (const Activity activity : used) {
    const auto item = out.element("li");
    {
      const int height = look(activity).compute ? 12 : 5;
      const auto sample = out.element(
          "svg", {{"class", "sample"}, {"width", "14"}, {"height", "14"}, {"aria-hidden", "true"}});
      out.leaf("rect", {{"class", look(activity).style},
                        {"y", text((14 - height) / 2)},
                        {"width", "14"},
                        {"height", text(height)}});
    }
    out.text(look(activity).title);
  }
}

// Measured and predicted time of each activity of graph nodes, summed over ranks.
void draw_node_times(Markup& out, const Timeline& measured, const Timeline& predicted) {
  struct Sums {
    int64_t nodes = 0;
    int64_t measured_ns = 0;
    int64_t predicted_ns = 0;
  };
  std::map<Activity, Sums> sums;
  for (const TraceRecord& record : measured.records) {
    Sums& sum = sums[activity_of(record.category)];
    ++sum.nodes;
    sum.measured_ns += record.end_ns - record.start_ns;
  }
  for (const TraceRecord& record : predicted.records)
    sums[activity_of(record.category)].predicted_ns += record.end_ns - record.start_ns;
  sums.erase(Activity::kNone);
  Table table{
      {text("Step ", measured.step, ", all ranks"), "Nodes", "Measured", "Predicted", "Measured ÷ predicted"},
      {},
      "lrrrr"};
  for (const auto& [activity, sum] : sums) {
    table.rows.push_back({look(activity).title, base::human_count(sum.nodes), shown_duration(sum.measured_ns),
                          shown_duration(sum.predicted_ns),
                          sum.predicted_ns > 0 ? shown_ratio(static_cast<double>(sum.measured_ns) /
                                                             static_cast<double>(sum.predicted_ns))
                                               : "–"});
  }
  draw_table(out, table);
  out.leaf("p", {{"class", "caption"}},
           "A measured transfer, pull or push begins when its rank is ready and so contains the wait for the "
           "others.");
}

}  // namespace

void draw_timelines(Markup& out, const RunData& data) {
  int64_t span_ns = 0;
  for (const Timeline& timeline : data.timelines) {
    for (const TraceRecord& record : timeline.records) span_ns = std::max(span_ns, record.end_ns);
  }
  if (span_ns == 0) return;
  const auto whole =
      section(out, "timeline", data.timelines.size() == 1 ? "A step, rank by rank" : "Steps, rank by rank");
  out.leaf("p", {{"class", "lead"}},
           data.timelines.size() == 1 ? "A row is a rank, or neighbours that do the same. Thin bars are "
                                        "transfers that run beside the computation."
                                      : "All on one scale of time. A row is a rank, or neighbours that do "
                                        "the same. Thin bars are transfers that run beside the computation.");
  draw_legend(out, data);
  for (const Timeline& timeline : data.timelines) {
    if (!timeline.records.empty()) draw_timeline(out, timeline, span_ns);
  }
  for (const Timeline& measured : data.timelines) {
    for (const Timeline& predicted : data.timelines) {
      const bool pair = measured.measured && !predicted.measured && measured.step == predicted.step &&
                        measured.system == predicted.system;
      if (pair) draw_node_times(out, measured, predicted);
    }
  }
}

}  // namespace sluice::report

#include "report/strategies_table.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "report/numbers.h"
#include "strategy/readable.h"

namespace sluice::report {

namespace {

using base::human_count;
using base::Json;
using base::text;

template <typename T, typename Show>
std::string shown(const Json& entry, const std::string& key, const std::string& name, const Show& show) {
  return entry.contains(key) ? show(base::require<T>(entry, key, name)) : "";
}

constexpr const char* kPeak = "peak_bytes";
constexpr const char* kMean = "mean_estimated_ns";
constexpr const char* kMeasured = "mean_estimated_ns_measured_passes";

std::string shown_gib(int64_t bytes) { return decimal(static_cast<double>(bytes) / 0x1p30, 1); }

// Whether the two assumptions about all-gathers between nodes give some strategy different times.
bool assumptions_differ(const Json& entries, const std::string& name) {
  return std::ranges::any_of(entries, [&](const Json& entry) {
    return entry.contains(kMeasured) &&
           base::require<int64_t>(entry, kMeasured, name) != base::get_or<int64_t>(entry, kMean, 0, name);
  });
}

std::vector<std::string> row_of(const Json& entry, const std::string& name) {
  const auto strategy = base::require<std::string>(entry, "strategy", name);
  const auto count = [](int64_t value) { return human_count(value); };
  const auto duration = [](int64_t ns) { return ns > 0 ? base::human_duration(ns) : "-"; };
  const auto range = [&](const std::vector<int64_t>& ends) {
    if (ends.size() != 2 || ends[1] == 0) return std::string("-");
    return ends[0] == ends[1] ? count(ends[0]) : text(count(ends[0]), " to ", count(ends[1]));
  };
  return {shown<double>(entry, "frequency", name, base::human_percent),
          shown<std::vector<int64_t>>(entry, "longest", name, range),
          shown<int64_t>(entry, "gpus", name, count),
          shown<int64_t>(entry, "max_len", name, count),
          shown<int64_t>(entry, kMean, name, duration),
          shown<int64_t>(entry, kMeasured, name, duration),
          shown<int64_t>(entry, "tokens_per_s", name, count),
          shown<double>(entry, "mfu", name, base::human_percent),
          shown<int64_t>(entry, kPeak, name, shown_gib),
          strategy::readable_text(strategy)};
}

std::string inputs_text(const Json& inputs, const std::string& name) {
  const auto lengths = base::require<Json>(inputs, "lengths", name);
  const auto calibration = base::require<Json>(inputs, "calibration", name);
  return text("for ", human_count(base::require<int>(inputs, "gpus", name), "GPU", "GPUs"), ", ",
              human_count(base::require<int64_t>(inputs, "tokens_per_step", name)), " tokens a step of ",
              human_count(base::require<int64_t>(lengths, "count", name), "document", "documents"),
              "; calibration ", base::require<std::string>(calibration, "name", name), "\n");
}

std::string codecs_text(const Json& codecs, const std::string& name) {
  const auto settings = base::require<std::vector<std::string>>(codecs, "settings", name);
  const auto ns = base::require<int64_t>(codecs, "mean_step_ns", name);
  const auto wide_ns = base::require<int64_t>(codecs, "wide_mean_step_ns", name);
  return text("fewer bits between ranks pay: with ", base::join(settings, " and "), " a mean step of ",
              strategy::readable_text(base::require<std::string>(codecs, "strategy", name)), " takes ",
              base::human_duration(ns), " instead of ", base::human_duration(wide_ns), "\n");
}

}  // namespace

std::string strategies_table(const Json& file, const std::string& name) {
  const auto entries = base::require<Json>(file, "strategies", name);
  std::string out =
      text(human_count(static_cast<int64_t>(entries.size()), "strategy", "strategies"), ", context ",
           human_count(base::get_or<int64_t>(file, "context_length", 0, name)), " tokens\n");
  if (file.contains("inputs")) out += inputs_text(base::require<Json>(file, "inputs", name), name);
  std::vector<std::vector<std::string>> rows = {{"steps", "longest sequences", "GPUs", "max sequence length",
                                                 "mean step", "as measured", "tokens/s", "MFU",
                                                 "GiB per device", "strategy"}};
  for (const Json& entry : entries) rows.push_back(row_of(entry, name));
  std::string alignment = "rrrrrrrrrl";
  const auto leave_out = [&](size_t column) {
    for (std::vector<std::string>& row : rows) row.erase(row.begin() + static_cast<ptrdiff_t>(column));
    alignment.erase(column, 1);
  };
  constexpr size_t kMeasuredColumn = 5, kMfuColumn = 7, kPeakColumn = 8;
  const auto leave_out_unknown = [&](size_t column, const char* key) {
    if (std::ranges::none_of(entries, [&](const Json& entry) { return entry.contains(key); }))
      leave_out(column);
  };
  // Columns are left out from the last to the first, so that indices stay valid.
  leave_out_unknown(kPeakColumn, kPeak);
  leave_out_unknown(kMfuColumn, "mfu");
  const bool differ = assumptions_differ(entries, name);
  if (!differ) leave_out(kMeasuredColumn);
  return text(out, base::table_text(rows, alignment),
              differ ? "mean step: gathers between nodes overlap with computation as the clock predicts; as "
                       "measured: they cost what FlexSP measured\n"
                     : "",
              file.contains("codecs") ? codecs_text(base::require<Json>(file, "codecs", name), name) : "");
}

}  // namespace sluice::report

#include "report/prometheus.h"

#include <charconv>
#include <string_view>
#include <variant>

#include "base/text.h"

namespace sluice::report {
namespace {

using base::text;

std::string number(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

// A family: its help and type, then its samples.
class Family {
 public:
  Family(std::string& out, std::string name, std::string_view type, const std::string& help)
      : out_(out), name_(std::move(name)) {
    if (!help.empty()) out_ += text("# HELP ", name_, " ", help, "\n");
    out_ += text("# TYPE ", name_, " ", type, "\n");
  }
  void sample(double value, const std::string& labels = "") const {
    out_ += text(name_, labels, " ", number(value), "\n");
  }

 private:
  std::string& out_;
  std::string name_;
};

// "time_ms" -> "sluice_step_seconds", "planning_ms" -> "sluice_planning_seconds".
std::string name_of(const std::string& key) {
  if (key == "time_ms") return "sluice_step_seconds";
  if (key.ends_with("_ms")) return text("sluice_", key.substr(0, key.size() - 3), "_seconds");
  return text("sluice_", key);
}

std::string of_rank(size_t rank) { return text("{rank=\"", rank, "\"}"); }

void add(std::string& out, const Metric& metric, const StepRecord& step, const base::Json& value) {
  const std::string key = metric.key;
  const double unit = key.ends_with("_ms") ? 1e-3 : 1;
  if (value.is_number()) {
    Family(out, name_of(key), "gauge", metric.meaning).sample(value.get<double>() * unit);
  } else if (const auto* of_ranks = std::get_if<std::vector<double> StepRecord::*>(&metric.member)) {
    const std::vector<double>& figures = step.*(*of_ranks);
    if (figures.empty()) return;
    const Family family(out, name_of(key), "gauge", metric.meaning);
    for (size_t rank = 0; rank < figures.size(); ++rank) family.sample(figures[rank] * unit, of_rank(rank));
  }
}

}  // namespace

std::string prometheus_text(const StepRecord& step, const PrometheusTotals& totals) {
  std::string out;
  const base::Json line = to_json(step);
  for (const Metric& metric : step_metrics()) add(out, metric, step, line.value(metric.key, base::Json()));
  Family(out, "sluice_steps_total", "counter", "done by the run").sample(static_cast<double>(step.step + 1));
  Family(out, "sluice_tokens_total", "counter", "trained on since this process began")
      .sample(static_cast<double>(totals.tokens));
  const Family alarms(out, "sluice_alarm", "gauge", "1: a rank is slow");
  for (const int rank : totals.slow_ranks) alarms.sample(1, text("{rank=\"", rank, "\",metric=\"pace\"}"));
  return out;
}

}  // namespace sluice::report

#include "report/prometheus.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/json.h"
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

double micro_batch_of(const std::string& key) { return key.ends_with("_ms") ? 1e-3 : 1; }

void add(std::string& out, const Metric& metric, const base::Json& value) {
  if (!value.is_number()) return;
  Family(out, name_of(metric.key), "gauge", metric.meaning)
      .sample(value.get<double>() * micro_batch_of(metric.key));
}

void add(std::string& out, watch::Figure figure, const std::vector<double>& of_ranks) {
  if (of_ranks.empty()) return;
  const std::string key = key_of(figure);
  const Family family(out, name_of(key), "gauge", watch::traits(figure).meaning);
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!std::isnan(of_ranks[rank])) family.sample(of_ranks[rank] * micro_batch_of(key), of_rank(rank));
  }
}

}  // namespace

std::string prometheus_text(const StepRecord& step, int64_t tokens) {
  std::string out;
  const base::Json line = to_json(step);
  for (const Metric& metric : step_metrics()) add(out, metric, line.value(metric.key, base::Json()));
  for (const watch::Figure figure : watch::all_figures()) add(out, figure, step.figures[figure]);
  Family(out, "sluice_steps_total", "counter", "done by the run").sample(static_cast<double>(step.step + 1));
  Family(out, "sluice_tokens_total", "counter", "trained on since this process began")
      .sample(static_cast<double>(tokens));
  const Family alarms(out, "sluice_alarm", "gauge", "1: a rank makes the others wait");
  for (const watch::Alarm& alarm : step.alarms)
    alarms.sample(1, text("{rank=\"", alarm.rank, "\",metric=\"", watch::name_of(alarm.cause), "\"}"));
  return out;
}

}  // namespace sluice::report

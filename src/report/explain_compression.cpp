#include "report/explain_compression.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "graph/build.h"
#include "model/parameters.h"

namespace sluice::report {

namespace {

using strategy::Codec;
using strategy::PullCodec;
using strategy::WireCodecs;

constexpr double kWorthShowing = 1e-3;  // per step

struct Setting {
  const char* text;
  void (*apply)(WireCodecs&);
};

void push_in(WireCodecs& codecs, Codec in_node, Codec between) {
  codecs.push = codecs.sums = {in_node, between};
}

constexpr Setting kSettings[] = {
    {R"(push = "bfloat16")", [](WireCodecs& codecs) { push_in(codecs, Codec::kBFloat16, Codec::kBFloat16); }},
    {R"(push = "int8")", [](WireCodecs& codecs) { push_in(codecs, Codec::kInt8, Codec::kInt8); }},
    {R"(push = ["int8", "int4"])", [](WireCodecs& codecs) { push_in(codecs, Codec::kInt8, Codec::kInt4); }},
    {R"(pull = "int4-difference")", [](WireCodecs& codecs) { codecs.pull = PullCodec::kInt4Difference; }},
    {R"(gather = "int8")", [](WireCodecs& codecs) { codecs.gather = Codec::kInt8; }}};

}  // namespace

std::vector<ExplainedCompression> explain_compression(const strategy::StepPlan& plan,
                                                      const plan::Planner& planner) {
  const int world_size = planner.options().world_size;
  if (world_size == 1) return {};
  const cost::CostModel& cost = planner.cost();
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  const auto step_ns = [&](const strategy::StepPlan& of, const cost::CostModel& by) {
    return graph::build(of, table, by, world_size, {.disabled_passes = {"verify"}}).makespan_ns;
  };
  const WireCodecs& now = cost.options().codecs;
  std::vector<ExplainedCompression> wire{{"", step_ns(plan, cost)}};
  for (const Setting& setting : kSettings) {
    WireCodecs codecs = now;
    setting.apply(codecs);
    if (codecs == now) continue;
    cost::CostModel::Options options = cost.options();
    options.codecs = codecs;
    options.whole_pulls = options.whole_pulls || planner.options().candidates.size() > 1;
    // Codecs need memory, too, so the step is planned anew.
    const plan::Planner changed(planner.options(), cost.with(std::move(options)));
    const base::Feasible<strategy::StepPlan> own = changed.try_plan(plan.step, plan.sequences);
    if (!own) continue;
    const int64_t changed_ns = step_ns(*own, changed.cost());
    const auto change = static_cast<double>(std::abs(changed_ns - wire.front().step_ns));
    if (change > kWorthShowing * static_cast<double>(wire.front().step_ns))
      wire.push_back({setting.text, changed_ns});
  }
  std::ranges::stable_sort(wire.begin() + 1, wire.end(), {}, &ExplainedCompression::step_ns);
  return wire;
}

std::string compression_text(const std::vector<ExplainedCompression>& wire) {
  if (wire.empty()) return "";
  std::string shown = base::text("With communication as configured the step takes ",
                                 base::human_duration(wire.front().step_ns), " by the clock");
  if (wire.size() == 1) return shown + "; compressed communication would make no difference.\n";
  std::vector<std::string> others;
  for (size_t i = 1; i < wire.size(); ++i)
    others.push_back(base::text(base::human_duration(wire[i].step_ns), " with ", wire[i].setting));
  return base::text(shown, "; with these keys of [link] it takes ", base::join(others, ", "), ".\n");
}

}  // namespace sluice::report

#include "cli/plan_serving.h"

#include <iostream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/planning.h"
#include "session/serving_plan.h"
#include "strategy/readable.h"

namespace sluice::cli {
namespace {

using base::text;
using session::ServingRow;

constexpr int64_t kMostTokens = int64_t{1} << 24;

std::string whole(double value) { return base::human_count(static_cast<int64_t>(value + 0.5)); }

std::string table_of(const std::vector<ServingRow>& rows, const inference::Demand& demand,
                     const session::PlanningInputs& inputs) {
  const int64_t device_bytes = inputs.calibration.options.memory.device_bytes;
  std::vector<std::vector<std::string>> lines = {
      {"layout", "sequences", "time per output token", "tokens/s", "a GPU", "memory of the fullest"}};
  for (const ServingRow& row : rows) {
    if (const std::string fault = row.fault(demand, device_bytes); !fault.empty()) {
      lines.push_back({strategy::readable_text(row.layout), "-", "-", "-", "-", fault});
      continue;
    }
    lines.push_back({strategy::readable_text(row.layout), base::human_count(row.sequences),
                     base::human_duration(row.engine_step_ns), whole(row.tokens_per_s),
                     whole(row.tokens_per_s / inputs.options.gpus),
                     text(base::human_bytes(static_cast<double>(row.bytes)), " of ",
                          base::human_bytes(static_cast<double>(device_bytes)))});
  }
  return base::table_text(lines, "lrrrrl");
}

}  // namespace

void add_serving_options(CLI::App& command, ServingArguments& arguments,
                         const std::vector<CLI::Option*>& of_steps) {
  CLI::Option* serving = command.add_flag(
      "--serving", arguments.serving,
      "Plan serving instead of steps: layouts, the sequences that each runs, tokens a second");
  for (CLI::Option* option : of_steps) serving->excludes(option);
  inference::Demand& demand = arguments.demand;
  command.add_option("--input-len", demand.input_len, "With --serving: tokens of a prompt, in the mean")
      ->check(within(int64_t{1}, kMostTokens))
      ->capture_default_str()
      ->needs(serving);
  command.add_option("--output-len", demand.output_len, "With --serving: tokens that follow it, in the mean")
      ->check(within(int64_t{1}, kMostTokens))
      ->capture_default_str()
      ->needs(serving);
  command
      .add_option("--tpot-ms", arguments.between_ms,
                  "With --serving: the most time per output token of a sequence")
      ->check(within(0.001, 3.6e6))
      ->capture_default_str()
      ->needs(serving);
  command
      .add_flag("--disaggregated-prefill", demand.disaggregated_prefill,
                "With --serving: prompts go through the model on other devices")
      ->needs(serving);
}

void plan_serving(const session::PlanningOptions& options, const ServingArguments& arguments, bool json) {
  const session::PlanningInputs inputs = session::resolve_machine(with_model_folder(options));
  const cost::CostModel::Options& machine = inputs.calibration.options;
  log_counted(machine.model);
  if (!machine.scheme_times.empty())
    throw base::InputError(
        text("calibration ", options.calibration,
             " is a table of training times, which says nothing of serving: leave it out"));
  inference::Demand demand = arguments.demand;
  demand.tpot_ns = std::llround(arguments.between_ms * 1e6);
  const std::vector<ServingRow> rows = session::serving_rows(inputs, demand);
  if (rows.empty())
    throw base::InputError(text("no layout of ", inputs.options.gpus, " GPUs is known to ",
                                options.calibration,
                                ": measure what passes take (sluice profile), or use \"analytic\""));
  if (json) {
    base::Json list = base::Json::array();
    for (const ServingRow& row : rows) list.push_back(session::to_json(row, inputs.options.gpus));
    std::cout << base::json_text({{"gpus", inputs.options.gpus},
                                  {"cluster", inputs.cluster.name},
                                  {"input_len", demand.input_len},
                                  {"output_len", demand.output_len},
                                  {"tpot_ms", arguments.between_ms},
                                  {"disaggregated_prefill", demand.disaggregated_prefill},
                                  {"layouts", list}},
                                 2)
              << "\n";
    return;
  }
  std::cout << text(base::human_count(inputs.options.gpus, "GPU", "GPUs"), " of ", inputs.cluster.name,
                    ", prompts of ", base::human_count(demand.input_len), " tokens",
                    demand.disaggregated_prefill ? " (whose keys and values other devices compute)" : "",
                    ", responses of ", base::human_count(demand.output_len), ", tokens at most ",
                    base::human_duration(demand.tpot_ns), " apart (", inputs.calibration.source, ")\n\n",
                    table_of(rows, demand, inputs));
  std::cout << "\nSteady state of means: queues, and what long prompts do to others' tokens, are not in it. "
               "Links are\n"
               "latency and bandwidth; how well they carry small messages is not known.\n";
  if (std::ranges::any_of(rows, [](const ServingRow& row) {
        return row.layout_kind != ServingRow::LayoutKind::kPipelines;
      })) {
    std::cout << "Layouts with experts divided or apart are planned, not run: sluice serve and generate run "
                 "the others.\n";
  }
}

}  // namespace sluice::cli

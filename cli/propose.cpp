// sluice propose: proposes strategies for a corpus on a cluster.
#include <iostream>

#include "base/file.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/planning.h"
#include "cli/slow_notice.h"
#include "config/run_config.h"
#include "report/strategies_table.h"
#include "session/codec_choice.h"
#include "session/methods.h"
#include "session/propose_for_both.h"
#include "session/strategy_file.h"

namespace sluice::cli {

namespace {

struct ProposeArguments {
  session::PlanningOptions inputs;
  std::filesystem::path out;
  bool json = false;
};

void run(const ProposeArguments& arguments) {
  const session::PlanningOptions& asked = arguments.inputs;
  session::check_proposes(asked.method);
  const session::PlanningInputs inputs = session::resolve_planning(with_model_folder(asked));
  log_proposing(inputs);
  SlowNotice notice("proposing strategies");
  plan::PlannerOptions options = session::planner_options(inputs);
  options.progress = session::told_in_words([&notice](const std::string& how_far) { notice.tell(how_far); });
  options.known_steps = std::make_shared<plan::KnownSteps>();
  const cost::CostModel cost = inputs.cost();
  base::Json made_from = session::to_json(inputs);
  made_from["method"] = base::word_of(strategy::kMethodNames, asked.method);
  made_from["max"] = asked.max_strategies;
  made_from["max_cp"] = asked.max_cp;
  made_from["fsdp"] = asked.fsdp;
  session::ComparedPlanners planners;
  const std::vector<plan::Proposal> proposals = session::propose_for_both(options, cost, planners);
  notice.tell("comparing what ranks send each other");
  base::Json file =
      session::strategies_to_json(proposals, options, cost, inputs.cluster, std::move(made_from));
  if (const auto codecs = session::choose_codecs(options, cost, proposals, planners))
    file["codecs"] = session::to_json(*codecs);
  if (!arguments.out.empty()) base::write_json(arguments.out, file);
  if (arguments.json) {
    std::cout << base::json_text(file) << "\n";
  } else {
    std::cout << report::strategies_table(file, "the proposal");
  }
}

}  // namespace

void add_propose(CLI::App& app) {
  CLI::App* command = app.add_subcommand("propose", "Choose candidate strategies for a corpus on a cluster");
  auto arguments = std::make_shared<ProposeArguments>();
  for (CLI::Option* option : add_planning_options(*command, arguments->inputs)) {
    if (option->check_name("--lengths")) option->required();
  }
  command
      ->add_option("--calibration", arguments->inputs.calibration,
                   "A calibration.json, a shipped fit or \"analytic\"")
      ->capture_default_str();
  add_word_option(*command, "--method", arguments->inputs.method, session::parse_method, "ours or paper")
      ->default_str(base::word_of(strategy::kMethodNames, arguments->inputs.method));
  command->add_option("--max", arguments->inputs.max_strategies, "Most strategies")
      ->check(within(1, 100))
      ->capture_default_str();
  command
      ->add_option(
          "--max-cp", arguments->inputs.max_cp,
          "Largest CP degree, over whose ranks long sequences are cut (default: all ranks'; with method "
          "paper 1)")
      ->check(within(1, 1 << 20));
  command->add_flag("!--no-fsdp", arguments->inputs.fsdp, "Propose no FSDP");
  add_output(*command, "--out", arguments->out, Output::kFile, "Write strategies.json here");
  command->add_flag("--json", arguments->json, "Print the content of strategies.json instead of a table");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli

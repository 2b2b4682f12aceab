// sluice report: the HTML report of a run, real or simulated.
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/outputs.h"
#include "report/run_files.h"

namespace sluice::cli {

namespace {

struct ReportArguments {
  std::filesystem::path run;
  std::filesystem::path out;
};

void run(const ReportArguments& arguments) {
  const std::filesystem::path out = arguments.out.empty() ? arguments.run / "report.html" : arguments.out;
  report::write_report(arguments.run, out);
  std::cout << "wrote " << out.string() << "\n";
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("report", "(Re)build the HTML report of a run, also of one that goes on");
  auto arguments = std::make_shared<ReportArguments>();
  command->add_option("run", arguments->run, "The directory that train or simulate wrote")->required();
  add_output(*command, "--out", arguments->out, Output::kFile,
             "Write the report here (default: RUN/report.html)");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli

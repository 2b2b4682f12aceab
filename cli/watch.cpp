// sluice watch: finds the slow ranks of a run from its files, also while it runs.
#include "report/watch.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "base/json.h"
#include "cli/command.h"

namespace sluice::cli {

namespace {

struct WatchArguments {
  std::filesystem::path run;
  bool json = false;
  bool once = false;
};

void run(const WatchArguments& arguments) {
  constexpr auto kPause = std::chrono::seconds(2);
  constexpr const char* kClear = "\033[H\033[J";
  if (arguments.json) {
    std::cout << report::to_json(report::watch_run(arguments.run)).dump() << "\n";
    return;
  }
  const bool live = !arguments.once && ::isatty(STDOUT_FILENO) != 0;
  do {
    const std::string shown = report::to_text(report::watch_run(arguments.run));
    std::cout << (live ? kClear : "") << shown << std::flush;
    if (live) std::this_thread::sleep_for(kPause);
  } while (live);
}

}  // namespace

void add_watch(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("watch", "Slow ranks of a run, and the time that ranks wait; live on a terminal");
  auto arguments = std::make_shared<WatchArguments>();
  command->add_option("run", arguments->run, "The directory that train writes")->required();
  command->add_flag("--once", arguments->once, "Look once, on a terminal, too");
  command->add_flag("--json", arguments->json, "Look once, and print one object");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli

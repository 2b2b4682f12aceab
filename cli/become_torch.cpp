// The part of `sluice` for commands that need libtorch. Loading libtorch takes a third of a second of
// processor time, so they are in a program of their own, sluice-torch, which this process becomes.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/planning.h"
#include "cli/torch_commands.h"

namespace sluice::cli {

namespace {

// Replaces this process by sluice-torch, which lies beside this program, with the same arguments.
[[noreturn]] void become_torch() {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "sluice-torch";
  std::vector<std::string> arguments = command_line();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  throw base::RunError(base::text("this command needs libtorch, and ", program.string(),
                                  ", which has it, cannot be started: ", std::strerror(errno),
                                  ": build with SLUICE_TORCH=ON, and keep both programs in one folder"));
}

// Adds a command whose options, --help among them, sluice-torch reads.
void add_elsewhere(CLI::App& app, const char* name) {
  CLI::App* command = app.add_subcommand(name, about_torch_command(name));
  command->prefix_command()->set_help_flag();
  command->callback([] { become_torch(); });
}

}  // namespace

void add_profile(CLI::App& app) { add_elsewhere(app, "profile"); }
void add_train(CLI::App& app) { add_elsewhere(app, "train"); }
void add_eval(CLI::App& app) { add_elsewhere(app, "eval"); }
void add_embed(CLI::App& app) { add_elsewhere(app, "embed"); }
void add_generate(CLI::App& app) { add_elsewhere(app, "generate"); }
void add_serve(CLI::App& app) { add_elsewhere(app, "serve"); }
void add_export(CLI::App& app) { add_elsewhere(app, "export"); }
void add_import(CLI::App& app) { add_elsewhere(app, "import"); }
void add_doctor(CLI::App& app) { add_elsewhere(app, "doctor"); }

// A run's planner needs this machine's devices, which sluice-torch knows.
Planning planning_of_run(const RunPlanningOptions& /*options*/) { become_torch(); }

}  // namespace sluice::cli

// sluice: the program. It sets the process up, dispatches to commands, and turns errors into one line and an
// exit status: 0 done, 1 failed at run time, 2 wrong input, 3 infeasible. It is shared by sluice, without
// libtorch, and by sluice-torch, which sluice becomes for commands that need libtorch.
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/renames.h"
#include "base/stderr_lines.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/failure.h"
#include "study/methods.h"

namespace {

// Runs ahead of the libraries' initialisers.
//
// A process inherits ignored and blocked signals from the process that starts it. Without SIGCHLD's default,
// ends of children would go unnoticed. An ignored SIGHUP or SIGINT is intended (nohup, `&` in a script).
//
// Ranks and their launcher wait for stop signals where they are ready for them (survive/stop_signal.h,
// transport/local_launcher.h). Until then the signals stay pending: their default action would end the
// process without a message. A vanished reader of their output does not end them either: Ctrl-C on `sluice
// train | tee` ends tee first.
void before_libraries(int argc, char** argv, char**) {
  sluice::cli::say_what_nobody_catches();
  for (const int wanted : {SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE}) signal(wanted, SIG_DFL);
  const bool runs_ranks =
      argc > 1 && (std::strcmp(argv[1], "train") == 0 || std::strcmp(argv[1], "profile") == 0);
  sigset_t blocked;
  sigemptyset(&blocked);
  if (runs_ranks) blocked = sluice::base::stop_signals();
  sigprocmask(SIG_SETMASK, &blocked, nullptr);  // at once: a pending stop signal must stay pending
  if (runs_ranks) signal(SIGPIPE, SIG_IGN);
}
[[gnu::used, gnu::section(".preinit_array")]] void (*const run_first)(int, char**,
                                                                      char**) = &before_libraries;

// Services and containers start programs without HOME. With it set, all code that keeps the user's files
// finds the same place, here and in child processes.
void set_home() {
  const char* told = ::getenv("HOME");
  if (told != nullptr && *told != '\0') return;
  const passwd* user = ::getpwuid(::geteuid());
  const bool known = user != nullptr && user->pw_dir != nullptr && *user->pw_dir != '\0';
  ::setenv("HOME", known ? user->pw_dir : std::filesystem::temp_directory_path().c_str(), 1);
}

void set_process_up() {
  set_home();
  sluice::base::configure_log({});
  // Ranks have a connection to every other rank: raise the limit of open files as far as the system lets.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  // Tensors that are freed and allocated in every layer should not go back to the kernel in between. glibc
  // takes thresholds of 32 MiB at most.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails with an error
}

// Fails if the result did not reach standard output, for example because of a full disk in `> FILE`.
void require_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) {
    throw sluice::base::RunError("cannot write all of the result to standard output: free space behind it");
  }
}

void add_commands(CLI::App& app) {
  sluice::cli::add_corpus(app);
  sluice::cli::add_lengths(app);
  sluice::cli::add_propose(app);
  sluice::cli::add_plan(app);
  sluice::cli::add_fits(app);
  sluice::cli::add_simulate(app);
  sluice::cli::add_profile(app);
  sluice::cli::add_train(app);
  sluice::cli::add_eval(app);
  sluice::cli::add_embed(app);
  sluice::cli::add_generate(app);
  sluice::cli::add_serve(app);
  sluice::cli::add_export(app);
  sluice::cli::add_import(app);
  sluice::cli::add_report(app);
  sluice::cli::add_inspect(app);
  sluice::cli::add_keys(app);
  sluice::cli::add_models(app);
  sluice::cli::add_watch(app);
  sluice::cli::add_doctor(app);
  sluice::cli::add_completion(app);
}

int fail(const std::string& message, int exit_status) {
  std::cout.flush();
  sluice::base::say_on_stderr(sluice::base::text("sluice: ", sluice::base::printable(message), "\n"));
  return exit_status;
}

// "OLD is now NEW" for each option of the command line with an old name; "" if there is none.
std::string renamed_options(const std::string& command, int argc, char** argv) {
  std::vector<std::string> faults;
  for (int i = 2; i < argc; ++i) {
    const std::string argument(argv[i]);
    const std::string option = argument.substr(0, argument.find('='));
    if (const auto* row = sluice::base::renamed("option", option, "sluice " + command))
      faults.push_back(sluice::base::text(option, " is now ", row->name));
  }
  return sluice::base::join(faults, "; ");
}

// The fault of the command line, as one line.
std::string usage_fault(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(command->get_name());
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.empty() && first.front() != '-' && std::ranges::count(commands, first) == 0) {
    const std::string nearest = sluice::base::nearest_word(first, commands);
    return sluice::base::text("there is no command '", first, "': ",
                              nearest.empty() ? "known are " + sluice::base::join(commands, ", ")
                                              : "did you mean '" + nearest + "'?");
  }
  if (const std::string faults = renamed_options(first, argc, argv); !faults.empty()) return faults;
  constexpr std::string_view kUnread = "Could not convert: ";  // only numbers can fail in this way
  std::string_view fault = error.what();
  if (fault.starts_with(kUnread)) {
    fault.remove_prefix(kUnread.size());
    return sluice::base::text(fault, " is no number that fits: give one in digits");
  }
  return sluice::base::text(fault, ": --help says what can be given");
}

// The exit status.
int run(int argc, char** argv) {
  set_process_up();
  sluice::study::offer_methods();
  const sluice::base::PrintableStream out(std::cout);
  const sluice::base::PrintableStream err(std::cerr);
  CLI::App app("Sluice trains Transformers on sequences of very different lengths.", "sluice");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  add_commands(app);
  try {
    app.parse(argc, argv);
    require_output();
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(usage_fault(app, error, argc, argv), 2);
  } catch (const sluice::base::Error& error) {
    return fail(error.what(), error.exit_status());
  } catch (const std::exception& error) {
    return fail(sluice::base::describe_failure(error), 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int status = run(argc, argv);
#if !defined(__SANITIZE_ADDRESS__)  // which counts leaks behind main()
  // All that commands made is written and closed. Libraries' destructors would follow: libtorch takes back
  // its operators one by one, for 0.1 s of a processor, a third of what an empty command takes in all.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);
#endif
  return status;
}

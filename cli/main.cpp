// sluice: the program. Sets the process up, dispatches to the commands, turns errors into one line and an
// exit status: 0 done, 1 failed at run time, 2 wrong input, 3 infeasible.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/command.h"
#if SLUICE_TORCH
#include "transport/launch.h"
#endif

namespace {

constexpr const char* kOutOfMemory = "out of memory: allow the process more, or give it a smaller input";

// Of an exception that no main can catch: in a thread, or before main while libraries set themselves up.
// Memory may be what is missing, so none is taken.
[[noreturn]] void end_unhandled() {
  const auto say = [](std::string_view line) {
    [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, line.data(), line.size());
  };
  say("sluice: ");
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    say("internal error: terminated");
  } catch (const std::bad_alloc&) {
    say(kOutOfMemory);
  } catch (const std::exception& error) {
    const std::string_view message = error.what();
    say(message.substr(0, message.find_first_of("\n\x1b")));
  } catch (...) {
    say("internal error: something unknown was thrown");
  }
  say("\n");
  ::_exit(1);
}

// Runs before the libraries' own constructors, libtorch's among them.
void watch_for_unhandled() { std::set_terminate(&end_unhandled); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)() = &watch_for_unhandled;

// Tensors that are freed and allocated every layer should not go back to the kernel in between. 32 MiB is the
// largest threshold that glibc takes.
void set_process_up() {
  sluice::base::configure_log({});
#if SLUICE_TORCH
  sluice::transport::use_batch_scheduling();
#endif
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is an error of its write, which says so
}

// A result that did not reach standard output, a full disk behind `> FILE` say, is none.
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
  sluice::cli::add_simulate(app);
#if SLUICE_TORCH
  sluice::cli::add_profile(app);
  sluice::cli::add_train(app);
  sluice::cli::add_eval(app);
  sluice::cli::add_export(app);
  sluice::cli::add_import(app);
#endif
  sluice::cli::add_report(app);
  sluice::cli::add_inspect(app);
#if SLUICE_TORCH
  sluice::cli::add_doctor(app);
#endif
}

int fail(const std::string& message, int exit_status) {
  std::cout.flush();
  std::fprintf(stderr, "sluice: %s\n", sluice::base::printable(message).c_str());
  return exit_status;
}

// Why the command line cannot be followed, in a line.
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
  return sluice::base::text(error.what(), ": --help says what can be given");
}

}  // namespace

int main(int argc, char** argv) {
  set_process_up();
  const sluice::base::PrintableStream out(std::cout);
  const sluice::base::PrintableStream err(std::cerr);
  CLI::App app("Sluice trains Transformers on sequences of very different lengths.", "sluice");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sluice 0.1.0");
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
  } catch (const std::bad_alloc&) {
    return fail(kOutOfMemory, 1);
  } catch (const std::exception& error) {
    const std::string message = error.what();  // libtorch's goes on with its stack
    return fail(message.substr(0, message.find('\n')), 1);
  }
}

// The options of a rank before it meets the others.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "config/run_config.h"
#include "corpus/indexed.h"
#include "corpus/python_child.h"
#include "storage/location.h"
#include "survive/supervisor.h"
#include "transport/launch.h"

namespace sluice::run {

struct RunOptions {
  config::RunConfig config;
  transport::Launch launch;
  std::string resume;  // "", "auto", or the path or s3://… of a checkpoint or run directory
  // Resolves a path or s3://... (cli/environment.h). Without buckets unless set.
  std::function<storage::Location(const std::string&)> locate = [](const std::string& text) {
    return storage::locate(text, {});
  };
  corpus::IndexedOptions corpora;  // how corpora in buckets are found
  corpus::PythonTools tools;       // for tokenizers and rewards
  std::filesystem::path cache;     // what later runs need not make again; empty: nothing is kept
  bool dry_run = false;            // nothing will be written: earlier runs in the directory don't matter
  // For a rank with a supervisor: the state to resume from, and the place of its snapshots.
  std::optional<survive::WorkerContext> worker_context;
  int64_t membership_number() const { return worker_context ? worker_context->membership.number : 0; }
  std::string command;  // the user's command line, shown to others that find the run directory taken

  // An earlier failure of this rank, if any: reading the configuration, opening its log. The other ranks are
  // notified instead of waiting, and one of all failed ranks reports to the user.
  std::exception_ptr failure;

  // Called if this rank cannot go on while others may wait for it: a node failed, or another rank was lost
  // (the error names it; a QuietError if that rank itself reports to the user). Any thread, perhaps in the
  // middle of a step; it must end the process without unwinding. Nothing is saved any more.
  std::function<void(const base::Error& error)> end_process;
};

// A peer was lost, or others wait to join: the run goes on in the next membership, in another process.
class MembershipChange : public base::Error {
 public:
  explicit MembershipChange(const std::string& why) : base::Error(why, transport::kReplaceableStatus) {}
};

}  // namespace sluice::run

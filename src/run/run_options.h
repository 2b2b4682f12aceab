// What a rank of a run is told before it meets the others.
#pragma once

#include <exception>
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
  // What a text names where s3:// may stand (cli/environment.h). Without buckets unless set.
  std::function<storage::Location(const std::string&)> locate = [](const std::string& text) {
    return storage::locate(text, {});
  };
  corpus::IndexedOptions corpora;  // where those in buckets are found
  corpus::PythonTools tools;       // for tokenizers and rewards
  bool dry_run = false;            // nothing will be written: earlier runs in the directory don't matter
  // Of a rank with a supervisor: what the run goes on from, and where its snapshots lie.
  std::optional<survive::WorkerContext> worker_context;
  int64_t membership_number() const { return worker_context ? worker_context->membership.number : 0; }
  std::string command;  // what the user started, for who finds the run directory taken

  // What already went wrong on this rank, if anything: reading the configuration, opening its log. The other
  // ranks hear of it instead of waiting, and one of all that failed tells the user.
  std::exception_ptr failure;

  // Called when this rank cannot go on while others may wait for it: a node failed, or another rank was lost
  // (the error names it; a QuietError if that rank tells the user itself). Any thread, perhaps in the middle
  // of a step; it must end the process without unwinding. Nothing is saved any more.
  std::function<void(const base::Error& error)> end_process;
};

// A peer was lost, or others wait to join: the run goes on in the next epoch, another process.
class MembershipChange : public base::Error {
 public:
  explicit MembershipChange(const std::string& why) : base::Error(why, transport::kReplaceableStatus) {}
};

}  // namespace sluice::run

// Work beside a server while it serves: signals to stop, and a run whose checkpoints are followed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>

#include "base/stop_signals.h"
#include "serve/server.h"
#include "storage/location.h"
#include "train/evaluator.h"
#include "train/model_source.h"

namespace sluice::cli {

// At a signal to stop, all of which are blocked in all threads: takes no new request, lets those under way
// end for so many seconds, tells the others, and stops the server. A second signal ends the wait.
class StopAtSignal {
 public:
  StopAtSignal(serve::Server& server, serve::Engine& engine, double grace_s);
  ~StopAtSignal();

 private:
  void run();
  void wait_for_answers(double seconds);

  serve::Server& server_;
  serve::Engine& engine_;
  const double grace_s_;
  sigset_t signals_ = base::stop_signals();
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

// The name that answers give the parameters that they come from.
std::string fingerprint_of(const train::ModelSource& model);

// Collective over the ranks of a model.
void take_up(const std::string& place, train::Evaluator& evaluator);

// Looks for a newer checkpoint of the run every so often, and has the engine take it between two steps.
class Follow {
 public:
  Follow(const storage::Location& location, std::string served, serve::Engine& engine, serve::Server& server,
         train::Evaluator& evaluator);
  ~Follow();

 private:
  void run();
  void look();
  void tell(const std::string& fault);

  const storage::Location location_;
  std::string served_;
  std::string told_;
  serve::Engine& engine_;
  serve::Server& server_;
  train::Evaluator& evaluator_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli

// Work beside a server while it serves: signals to stop, and a run whose checkpoints are followed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/stop_signals.h"
#include "run/evaluator.h"
#include "run/model_source.h"
#include "serve/server.h"
#include "storage/location.h"

namespace sluice::cli {

// State that a model's ranks leave for the ranks started in their place. It lies in memory that the launcher
// shares with the processes that it forks.
class ServedBefore {
 public:
  ServedBefore();
  ~ServedBefore();
  ServedBefore(const ServedBefore&) = delete;
  ServedBefore& operator=(const ServedBefore&) = delete;

  // For ranks: the port that earlier ranks served at, which clients know; 0: none have served.
  int port() const { return *port_; }
  void serves_at(int port);

  // For the launcher, when all ranks have ended. Ranks that never served are not restarted: the user has to
  // see their error. Others are, after a pause that grows as long as restarted ranks don't serve.
  std::optional<int64_t> begin_anew_after_ns();

 private:
  std::atomic<int>* port_;
  std::atomic<int>* serves_;  // the ranks that were started last
  int64_t pause_ns_ = 0;
};

// At a signal to stop, all of which are blocked in all threads: takes no new request, lets those under way
// end for so many seconds, tells the others, and stops the server. A second signal ends the wait. With kStop
// it stops the server, too, when the engine has failed: ranks that can't do without one that was lost end,
// and their launcher starts them anew.
class StopAtSignal {
 public:
  enum class AtFault : uint8_t { kAnswerOn, kStop };
  StopAtSignal(serve::Server& server, serve::RequestEngine& engine, double grace_s, AtFault at_fault);
  ~StopAtSignal();

 private:
  void run();
  bool wait_for_signal();
  void wait_for_answers(double seconds);

  serve::Server& server_;
  serve::RequestEngine& engine_;
  const double grace_s_;
  const AtFault at_fault_;
  sigset_t signals_ = base::stop_signals();
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

// The name that answers give the parameters that they come from.
std::string fingerprint_of(const run::ModelSource& model);

// Collective over the ranks of a model.
void take_up(const std::string& place, run::Evaluator& evaluator);

// Looks for a newer checkpoint of the run every so often, and has the engine take it between two steps.
class Follow {
 public:
  Follow(const storage::Location& location, std::string served, serve::RequestEngine& engine,
         serve::Server& server, run::Evaluator& evaluator);
  ~Follow();

 private:
  void run();
  void look();
  void tell(const std::string& fault);

  const storage::Location location_;
  std::string served_;
  std::string told_;
  serve::RequestEngine& engine_;
  serve::Server& server_;
  run::Evaluator& evaluator_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli

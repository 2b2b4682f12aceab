// Work beside a running server: stop signals, and following a run's checkpoints.
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

// State that a model's ranks leave for restarted ranks. It lies in memory that the launcher shares with the
// processes that it forks.
class ServedBefore {
 public:
  ServedBefore();
  ~ServedBefore();
  ServedBefore(const ServedBefore&) = delete;
  ServedBefore& operator=(const ServedBefore&) = delete;

  // For ranks: the port at which earlier ranks served, known to clients; 0: none have served.
  int port() const { return *port_; }
  void serves_at(int port);

  // For the launcher, after all ranks have ended. Ranks that never served are not restarted: the user has to
  // see their error. Other ranks restart after a pause, which grows while restarted ranks fail to serve.
  std::optional<int64_t> begin_anew_after_ns();

 private:
  std::atomic<int>* port_;
  std::atomic<int>* serves_;  // 1: the ranks started last have served
  int64_t pause_ns_ = 0;
};

// On a stop signal (blocked in all threads) refuses new requests, gives running ones so many seconds to end,
// ends the rest with an error, and stops the server. A second signal ends the wait. With kStop it also stops
// the server when the engine has failed: ranks that cannot go on without a lost one end, and their launcher
// restarts them.
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

// The name of the model's parameters in answers.
std::string fingerprint_of(const run::ModelSource& model);

// Replaces the model by the one at `place`. Collective over the ranks of a model.
void take_up(const std::string& place, run::Evaluator& evaluator);

// Looks for newer checkpoints of the run now and then; the engine loads them between two steps.
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

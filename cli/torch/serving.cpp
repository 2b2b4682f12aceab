#include "cli/torch/serving.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/environment.h"

namespace sluice::cli {

using base::text;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::milliseconds kFaultPoll{500};
constexpr std::chrono::seconds kSameSignal{1};  // launchers and process groups repeat signals at once
constexpr double kFarewellS = 5;                // for answers that give the reason of their end

}  // namespace

ServedBefore::ServedBefore() {
  void* const shared = ::mmap(nullptr, 2 * sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw base::RunError("no memory for what ranks share with their launcher");
  port_ = new (shared) std::atomic<int>[2];
  serves_ = port_ + 1;
}

ServedBefore::~ServedBefore() { ::munmap(port_, 2 * sizeof(std::atomic<int>)); }

void ServedBefore::serves_at(int port) {
  *port_ = port;
  *serves_ = 1;
}

std::optional<int64_t> ServedBefore::begin_anew_after_ns() {
  constexpr int64_t kShortest = 1'000'000'000, kLongest = 30'000'000'000;
  if (*port_ == 0) return std::nullopt;
  pause_ns_ = serves_->exchange(0) != 0 ? kShortest : std::min(kLongest, 2 * pause_ns_);
  return pause_ns_;
}

StopAtSignal::StopAtSignal(serve::Server& server, serve::RequestEngine& engine, double grace_s, AtFault at_fault)
    : server_(server), engine_(engine), grace_s_(grace_s), at_fault_(at_fault), thread_([this] { run(); }) {}

StopAtSignal::~StopAtSignal() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

// Returns false if the engine has failed.
bool StopAtSignal::wait_for_signal() {
  const timespec pause{0, std::chrono::nanoseconds(kFaultPoll).count()};
  while (sigtimedwait(&signals_, nullptr, &pause) < 0) {
    if (at_fault_ == AtFault::kStop && !engine_.fault().empty()) return false;
  }
  return true;
}

void StopAtSignal::run() {
  if (!wait_for_signal()) {
    server_.drain();
    wait_for_answers(kFarewellS);
    return server_.stop();
  }
  if (done_) return;
  base::log_info(text("told to stop: requests under way have ", grace_s_, " s to end"));
  server_.drain();
  wait_for_answers(grace_s_);
  if (done_) return;
  engine_.stop("the server stops: ask again later, or another one");
  wait_for_answers(kFarewellS);
  server_.stop();
}

// Waits until the server has ended, the time is over, or another signal arrives.
void StopAtSignal::wait_for_answers(double seconds) {
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (!done_ && Clock::now() < end) {
    const timespec pause{0, std::chrono::nanoseconds(kPoll).count()};
    if (sigtimedwait(&signals_, nullptr, &pause) > 0 && Clock::now() > begin + kSameSignal) return;
  }
}

std::string fingerprint_of(const run::ModelSource& model) {
  const std::string name = model.name();
  return name.substr(name.rfind('/') + 1);
}

void take_up(const std::string& place, run::Evaluator& evaluator) {
  evaluator.reload([&] { return run::open_model(locate(place)); });
}

Follow::Follow(const storage::Location& location, std::string served, serve::RequestEngine& engine,
               serve::Server& server, run::Evaluator& evaluator)
    : location_(location),
      served_(std::move(served)),
      engine_(engine),
      server_(server),
      evaluator_(evaluator),
      thread_([this] { run(); }) {}

Follow::~Follow() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Follow::run() {
  constexpr std::chrono::seconds kPause{2};
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kPause, [this] { return done_; })) {
    lock.unlock();
    try {
      look();
    } catch (const base::Error& error) {
      tell(error.what());
    }
    lock.lock();
  }
}

void Follow::look() {
  const run::ModelSource newest = run::open_model(location_);
  if (newest.name() == served_) return;
  // All ranks open the same checkpoint, even if a newer one appears meanwhile.
  const std::string place = newest.checkpoint ? newest.checkpoint->directory().string() : location_.string();
  const auto take = [&] {
    take_up(place, evaluator_);
    server_.set_fingerprint(fingerprint_of(newest));
  };
  if (!engine_.between_steps(take, place)) return;
  served_ = newest.name();
  base::log_info(text("serving ", served_));
}

// Warns once per fault: a run may be writing, or be gone for a while.
void Follow::tell(const std::string& fault) {
  if (std::exchange(told_, fault) != fault) base::log_warning(text("serving ", served_, " still: ", fault));
}

}  // namespace sluice::cli

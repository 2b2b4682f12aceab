#include "cli/torch/serving.h"

#include <chrono>
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
constexpr std::chrono::seconds kSameSignal{1};  // launchers and groups repeat theirs at once
constexpr double kFarewellS = 5;                // for answers that say why they end

}  // namespace

StopAtSignal::StopAtSignal(serve::Server& server, serve::Engine& engine, double grace_s)
    : server_(server), engine_(engine), grace_s_(grace_s), thread_([this] { run(); }) {}

StopAtSignal::~StopAtSignal() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void StopAtSignal::run() {
  int signal = 0;
  sigwait(&signals_, &signal);
  if (done_) return;
  base::log_info(text("told to stop: requests under way have ", grace_s_, " s to end"));
  server_.drain();
  wait_for_answers(grace_s_);
  if (done_) return;
  engine_.stop("the server stops: ask again later, or another one");
  wait_for_answers(kFarewellS);
  server_.stop();
}

// Until the server has ended, the time is over, or another signal comes.
void StopAtSignal::wait_for_answers(double seconds) {
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (!done_ && Clock::now() < end) {
    const timespec pause{0, std::chrono::nanoseconds(kPoll).count()};
    if (sigtimedwait(&signals_, nullptr, &pause) > 0 && Clock::now() > begin + kSameSignal) return;
  }
}

std::string fingerprint_of(const train::ModelSource& model) {
  const std::string name = model.name();
  return name.substr(name.rfind('/') + 1);
}

void take_up(const std::string& place, train::Evaluator& evaluator) {
  evaluator.reload([&] { return train::open_model(locate(place)); });
}

Follow::Follow(const storage::Location& location, std::string served, serve::Engine& engine,
               serve::Server& server, train::Evaluator& evaluator)
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
  const train::ModelSource newest = train::open_model(location_);
  if (newest.name() == served_) return;
  // The others open the same, whatever is newer by then.
  const std::string place = newest.checkpoint ? newest.checkpoint->directory().string() : location_.string();
  const auto take = [&] {
    take_up(place, evaluator_);
    server_.set_fingerprint(fingerprint_of(newest));
  };
  if (!engine_.between_steps(take, place)) return;
  served_ = newest.name();
  base::log_info(text("serving ", served_));
}

// A run may be writing, or gone for a while: once is enough.
void Follow::tell(const std::string& fault) {
  if (std::exchange(told_, fault) != fault) base::log_warning(text("serving ", served_, " still: ", fault));
}

}  // namespace sluice::cli

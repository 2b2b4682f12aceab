// Detects ranks that make others wait. For each cause, a rank has a score in each step: 1 if it is like the
// others, 1.5 if that cause takes half as long again. A score that stays high raises an alarm.
//
// Detectors such as Minder (Deng et al., 2024) compare metrics of machines and assume equal work. Plans for
// mixed lengths give ranks unequal work, so residuals of a prediction are compared here. Minder's stages that
// are used, and those that are not: docs/decisions/0015-watching.md.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "watch/figures.h"

namespace sluice::watch {

// Why a rank delays others. If several causes apply, or may, the first in this order is reported: a process
// that is stopped while sending also looks like a slow link.
enum class Cause : uint8_t { kSlowdown, kCopies, kHost, kLink };
inline constexpr size_t kCauses = 4;
// The cause's name in files and Prometheus: "slowdown", "copies", "host", "link".
const char* name_of(Cause cause);

// By cause, then rank: NaN if unknown; empty if all ranks' scores are unknown.
using Scores = std::array<std::vector<double>, kCauses>;

// kSlowdown, kCopies: relative slowdowns. kHost, kLink: 1 + time / `step_ns`, for time beyond the ranks'
// median. The host's time is neither inside nodes nor waiting. The link's is what others waited for the
// rank's messages, less the part that its slowdown, host time or own waiting explains.
Scores scores_of(const Figures& figures, int64_t step_ns);

struct Alarm {
  int rank = 0;
  Cause cause = Cause::kSlowdown;
  int64_t since = 0;  // the step from which on its score was high
  double score = 1;   // geometric mean over the window
  bool operator==(const Alarm&) const = default;
};

// A rank's median score over its first steps is its baseline, up to most_bias, by which a calibration may be
// wrong: ranks that always do other work than the others expose its errors. Not thread-safe. Equal scores
// give equal alarms on every rank.
class Detector {
 public:
  struct Options {
    int window = 8;  // steps whose mean is reported and decides when an alarm ends
    double recovered = 1.07;
    // A CUSUM test (Page, 1954) on the score's log. A step adds its excess over log(slack) or
    // slack_deviations of the noise, whichever is larger, at most log(most) or most_deviations. An alarm
    // begins when the sum exceeds `enough` or enough_deviations, and the window's mean exceeds `slow`.
    double slow = 1.1;
    // Less than `slow`: a rank that slows down by and by adds to its sum before it is slow.
    double slack = 1.08;
    double slack_deviations = 1;
    double most = 1.3;
    double most_deviations = 5;
    double enough = 0.3;
    double enough_deviations = 12;
    int first_steps = 32;
    double most_bias = 1.2;  // bound of the baseline from the first steps
    int noise_steps = 32;    // steps whose scatter is the noise
  };

  struct Change {
    Alarm alarm;
    bool begins = true;  // false: it ends
  };

  Detector() : Detector(Options{}) {}
  explicit Detector(const Options& options) : options_(options) {}

  const Options& options() const { return options_; }
  // Adds a step's scores; another number of ranks restarts all. Returns alarms that begin or end.
  std::vector<Change> add(int64_t step, const Scores& scores);
  // The current alarms, by cause, then rank.
  std::vector<Alarm> alarms() const;
  // Each rank's geometric mean over the window; 0 while too few scores are known.
  std::vector<double> slowdowns() const { return series_[0].windows(); }

 private:
  // One cause's scores.
  class Series {
   public:
    void restart(size_t ranks, const Options& options);
    void add(std::span<const double> scores);
    double window(size_t rank) const;  // 0: too few scores are known
    std::vector<double> windows() const;
    bool is_slow(size_t rank, bool was_slow) const;
    bool is_suspected(size_t rank) const;  // its mean is high, whether noise explains it or not
    int64_t since(size_t rank) const { return steps_ - begun_[rank]; }  // steps in which its sum grew
    void forget(size_t rank) { sums_[rank] = 0; }

   private:
    bool is_known(size_t rank) const { return std::ssize(logs_[rank]) == options_.window; }

    Options options_;
    std::vector<std::deque<double>> logs_;  // by rank: the last known scores
    std::deque<double> jumps_;              // all ranks' differences of successive logs
    double noise_ = 0;                      // deviation of a score's log
    int64_t steps_ = 0;
    std::vector<double> sums_;                // by rank
    std::vector<int64_t> begun_;              // by rank: the step before which its sum was 0
    std::vector<std::vector<double>> first_;  // by rank: the logs of its first steps
    std::vector<double> bias_;                // by rank: the baseline's log
  };

  Options options_;
  size_t ranks_ = 0;
  std::array<Series, kCauses> series_;
  std::array<std::vector<int64_t>, kCauses> since_;  // by rank: an alarm's first step; −1: no alarm
};

}  // namespace sluice::watch

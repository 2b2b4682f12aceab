// Who makes others wait. Each cause has a score by rank and step, 1 for a rank like the others and 1.5 for
// one that makes what it is of half as long again; a rank whose score stays high is told.
//
// Detectors of this field compare times of ranks, as Minder (Deng et al., 2024) compares metrics of machines:
// they assume that all do alike, which plans for mixed lengths see to that they don't. Residuals of a
// prediction do. What of Minder's stages is here and what is not: docs/decisions/0015-watching.md.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "watch/figures.h"

namespace sluice::watch {

// What of a rank holds the others up. Where several do, or may, the first is told: a process that is stopped
// in the middle of its messages looks like a slow link, too.
enum class Cause : uint8_t { kSlowdown, kCopies, kHost, kLink };
inline constexpr size_t kCauses = 4;
// The cause's name in files and Prometheus: "slowdown", "copies", "host", "link".
const char* name_of(Cause cause);

// By cause, then rank: NaN where it is not known; empty where nobody's is.
using Scores = std::array<std::vector<double>, kCauses>;

// Pace and copies: relative paces. Host and link: one more than the part of a step of `step_ns` that others
// waited for the rank, beyond the ranks' median: while it was neither in nodes nor waiting, and for its
// messages where neither its pace, its host nor its own waiting explains that.
Scores scores_of(const Figures& figures, int64_t step_ns);

struct Alarm {
  int rank = 0;
  Cause cause = Cause::kSlowdown;
  int64_t since = 0;  // step from which on its score was high
  double score = 1;   // over the window
  bool operator==(const Alarm&) const = default;
};

// What a rank was like over its first steps, as far as a calibration may be wrong by, counts as what it is
// like: ranks that always do other work than the others show its faults. Not thread-safe. The same scores
// make the same alarms everywhere.
class Detector {
 public:
  struct Options {
    int window = 8;  // steps whose mean is told, and says that it is over
    double recovered = 1.07;
    // Sums of what a score's logarithm is beyond `slow`, or so many deviations of its noise, none of a step
    // beyond `most`; a rank is told when they exceed `enough`, or so many deviations (cumulative sums, Page,
    // 1954).
    double slow = 1.1;
    double slow_deviations = 1.25;
    double most = 1.3;
    double most_deviations = 3;
    double enough = 0.3;
    double enough_deviations = 10;
    int first_steps = 32;
    double most_bias = 1.2;  // of those
    int noise_steps = 32;    // whose scatter tells what is chance
  };

  struct Change {
    Alarm alarm;
    bool begins = true;  // false: it is over
  };

  Detector() : Detector(Options{}) {}
  explicit Detector(const Options& options) : options_(options) {}

  const Options& options() const { return options_; }
  // The next step's; another number of ranks begins anew. What changed.
  std::vector<Change> add(int64_t step, const Scores& scores);
  // Those that are on, by cause, then rank.
  std::vector<Alarm> alarms() const;
  // By rank, over the window: 0 while too little is known.
  std::vector<double> slowdowns() const { return series_[0].windows(); }

 private:
  // One cause's scores.
  class Series {
   public:
    void restart(size_t ranks, const Options& options);
    void add(std::span<const double> scores);
    double window(size_t rank) const;  // 0: too little is known
    std::vector<double> windows() const;
    bool is_slow(size_t rank, bool was_slow) const;
    bool is_suspected(size_t rank) const;  // over the window, whatever noise may make
    int64_t since(size_t rank) const { return steps_ - begun_[rank]; }  // steps in which its sum grew
    void forget(size_t rank) { sums_[rank] = 0; }

   private:
    bool is_known(size_t rank) const { return std::ssize(logs_[rank]) == options_.window; }

    Options options_;
    std::vector<std::deque<double>> logs_;  // by rank, of the last steps in which its score was known
    std::deque<double> jumps_;              // of all ranks: between successive logs
    double noise_ = 0;                      // a score's deviation
    int64_t steps_ = 0;
    std::vector<double> sums_;                // by rank
    std::vector<int64_t> begun_;              // by rank, the step before which its sum was nothing
    std::vector<std::vector<double>> first_;  // by rank, the logs of its first steps
    std::vector<double> bias_;                // by rank, log, from those
  };

  Options options_;
  size_t ranks_ = 0;
  std::array<Series, kCauses> series_;
  std::array<std::vector<int64_t>, kCauses> since_;  // by rank; −1: no alarm
};

}  // namespace sluice::watch

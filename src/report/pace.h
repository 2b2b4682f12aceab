// Who computes slowly. A rank's pace is what it computed over what was planned for it, beside the other
// ranks' of the same step: 1 for one like the others, 2 for one that takes twice as long for its work,
// whatever work that is.
//
// Detectors of this field compare times of ranks, as Minder (Deng et al., 2024) compares metrics of machines:
// they assume that all do alike, which plans for mixed lengths see to that they don't. Residuals of a
// prediction do.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace sluice::report {

// By rank, from measured over planned in parts per million, 0 where that is not known: relative to the median
// of those known, 0 likewise.
std::vector<double> relative_paces(std::span<const int64_t> ppm);

// One rank that became slow, or is no longer.
struct PaceChange {
  int rank = 0;
  bool slow = true;
  double pace = 1;  // over the window
  // How long the step takes by the clock with all ranks' paces as they are, and were this rank like the
  // others; 0: not asked.
  int64_t step_ns = 0;
  int64_t without_ns = 0;
};

// Finds ranks that stay slow. Not thread-safe.
class PaceWatch {
 public:
  static constexpr int kWindow = 8;      // steps that are looked at together
  static constexpr double kSlow = 1.15;  // of the window: slow from here on
  static constexpr double kRecovered = 1.07;
  static constexpr int kNoiseSteps = 32;    // whose scatter tells what is chance
  static constexpr double kDeviations = 6;  // of its mean, that a rank must be beyond the others

  // The next step's relative paces, all ranks'; another number of ranks begins anew. What changed.
  std::vector<PaceChange> add(const std::vector<double>& paces);
  // By rank, over the window: 0 while too little is known.
  std::vector<double> paces() const;
  std::vector<int> slow_ranks() const;

 private:
  double noise() const;

  std::vector<std::deque<double>> logs_;  // by rank, of the last steps in which its pace was known
  std::deque<double> jumps_;              // of all ranks: between successive logs
  std::vector<char> slow_;
};

// "rank 5 takes 1.31 times as long as the others for what it computes …", for people.
std::string to_text(const PaceChange& change);

}  // namespace sluice::report

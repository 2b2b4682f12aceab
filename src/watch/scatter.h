// How much the ranks' times vary from step to step, each rank by itself. A step ends with its slowest rank,
// so it takes longer than each rank's usual time says (graph/step_prediction.h).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace sluice::watch {

// Not thread-safe. Equal slowdowns give equal deviations on every rank.
class Scatter {
 public:
  // Adds a step's slowdowns by rank; NaN or 0: unknown; none: a step that tells nothing. Another number of
  // ranks restarts all.
  void add(std::span<const double> slowdowns);
  // The deviation of a rank's time, as a part of it, beside what all ranks share: 0.05 for 5 %. It changes
  // after every kSteps steps only; 0 before that, and where fewer than two ranks are known.
  double deviation() const { return deviation_; }

  static constexpr int kSteps = 16;

 private:
  std::vector<double> last_;   // by rank: the last step's log, without what all ranks share; NaN: unknown
  std::vector<double> jumps_;  // differences of successive logs since the deviation changed
  int steps_ = 0;              // likewise
  double deviation_ = 0;
};

}  // namespace sluice::watch

// Minder's detection of faulty machines (Deng et al., 2024). Windows of each metric are denoised. The machine
// farthest from the others in a window is the candidate; staying the candidate over several windows in a row
// raises an alarm. All machines are assumed alike. Here machines are ranks and samples are steps.
// samples are steps.
//
// The paper does not give its normalisation of distances nor its threshold. Here a machine's sum of distances
// to the others is expressed in units of the scatter of the others' sums (leave-one-out), and the threshold
// is an option.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "minder/lstm_vae.h"

namespace sluice::minder {

struct Options {
  int64_t window = 8;
  double threshold = 4;  // least score of a candidate
  int continuity = 8;    // windows in a row that give an alarm
};

// The detector of one training task.
class Minder {
 public:
  // `denoisers`: by metric, in order of priority, trained on the task's quiet windows; null: windows are used
  // unchanged.
  Minder(const Options& options, std::vector<std::shared_ptr<const LstmVae>> denoisers);

  // Adds a sample, by metric, then rank, and returns the rank with an alarm, from the first metric that has
  // one. The alarm lasts as long as the rank stays the candidate.
  std::optional<int> add(std::span<const std::vector<double>> metrics);

 private:
  struct Candidate {
    int rank = -1;
    int windows = 0;  // windows in a row
  };
  struct Watched {
    std::shared_ptr<const LstmVae> denoiser;
    std::deque<std::vector<double>> samples;  // samples of the current window
    Candidate candidate;
  };
  std::optional<int> look(Watched& metric) const;

  Options options_;
  std::vector<Watched> metrics_;
};

// One window per rank, scaled to [0, 1] by the least and greatest value over all ranks.
at::Tensor normalised(const std::deque<std::vector<double>>& samples);
// Windows of several tensors, one below the other.
at::Tensor together(const std::vector<at::Tensor>& windows);
// One score per row: (its sum of distances − the mean of the others' sums) ÷ their deviation.
std::vector<double> leave_one_out_scores(const at::Tensor& windows_NW);

}  // namespace sluice::minder

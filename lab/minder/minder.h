// Minder's way to find a faulty machine (Deng et al., 2024), as its paper tells it: windows of each metric
// are denoised, the machine farthest from the others in the window is a candidate, and one that stays the
// candidate over so many windows in a row is told. It takes machines for alike. Machines are ranks here, and
// samples are steps.
//
// The paper does not say how distances are normalised, nor its threshold: here a machine's sum of distances
// to the others is set in units of the scatter of the others' sums (leave-one-out), and the threshold is
// given.
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
  double threshold = 4;  // of the candidate's score
  int continuity = 8;    // windows in a row
};

// One task's.
class Minder {
 public:
  // `denoisers`: by metric, in the order of their priority, what is learnt from the task's quiet windows;
  // null: windows are taken as they are.
  Minder(const Options& options, std::vector<std::shared_ptr<const LstmVae>> denoisers);

  // The next sample: by metric, then rank. The rank that is told with it; the first metric that tells one
  // decides. A rank stays told while it stays the candidate.
  std::optional<int> add(std::span<const std::vector<double>> metrics);

 private:
  struct Candidate {
    int rank = -1;
    int windows = 0;  // in a row
  };
  struct Watched {
    std::shared_ptr<const LstmVae> denoiser;
    std::deque<std::vector<double>> samples;  // the window's
    Candidate candidate;
  };
  std::optional<int> look(Watched& metric) const;

  Options options_;
  std::vector<Watched> metrics_;
};

// A window of each rank, brought into [0, 1] by the window's least and greatest value of all ranks.
at::Tensor normalised(const std::deque<std::vector<double>>& samples);
// Windows of several, one below the other.
at::Tensor together(const std::vector<at::Tensor>& windows);
// By row, how far it is from the others: (its sum of distances − the others' mean) ÷ their deviation.
std::vector<double> leave_one_out_scores(const at::Tensor& windows_NW);

}  // namespace sluice::minder

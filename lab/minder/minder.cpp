#include "minder/minder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::minder {

Minder::Minder(const Options& options, std::vector<std::shared_ptr<const LstmVae>> denoisers)
    : options_(options) {
  for (std::shared_ptr<const LstmVae>& denoiser : denoisers)
    metrics_.push_back({.denoiser = std::move(denoiser), .samples = {}, .candidate = {}});
}

std::optional<int> Minder::add(std::span<const std::vector<double>> metrics) {
  std::optional<int> told;
  for (size_t m = 0; m < metrics_.size(); ++m) {
    Watched& metric = metrics_[m];
    metric.samples.push_back(metrics[m]);
    if (std::ssize(metric.samples) > options_.window) metric.samples.pop_front();
    if (std::ssize(metric.samples) < options_.window) continue;
    const std::optional<int> rank = look(metric);
    if (!told) told = rank;
  }
  return told;
}

std::optional<int> Minder::look(Watched& metric) const {
  at::Tensor windows_NW = normalised(metric.samples);
  if (metric.denoiser) windows_NW = metric.denoiser->denoised(windows_NW);
  const std::vector<double> scores = leave_one_out_scores(windows_NW);
  const auto most = std::ranges::max_element(scores);
  const int rank = *most > options_.threshold ? static_cast<int>(most - scores.begin()) : -1;
  Candidate& candidate = metric.candidate;
  candidate = rank == candidate.rank ? Candidate{rank, candidate.windows + 1} : Candidate{rank, 1};
  if (rank < 0 || candidate.windows < options_.continuity) return std::nullopt;
  return rank;
}

at::Tensor normalised(const std::deque<std::vector<double>>& samples) {
  const auto ranks = static_cast<int64_t>(samples.front().size()), window = std::ssize(samples);
  double least = samples.front().front(), most = least;
  for (const std::vector<double>& sample : samples) {
    least = std::min(least, *std::ranges::min_element(sample));
    most = std::max(most, *std::ranges::max_element(sample));
  }
  const double width = most > least ? most - least : 1;
  at::Tensor windows = at::empty({ranks, window}, at::kFloat);
  float* value = windows.mutable_data_ptr<float>();
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    for (const std::vector<double>& sample : samples)
      *value++ = static_cast<float>((sample[rank] - least) / width);
  }
  return windows;
}

at::Tensor together(const std::vector<at::Tensor>& windows) { return at::cat(windows); }

std::vector<double> leave_one_out_scores(const at::Tensor& windows_NW) {
  const at::Tensor distances = at::cdist(windows_NW, windows_NW).sum(1).contiguous();
  const float* sums = distances.const_data_ptr<float>();
  const int64_t ranks = distances.size(0);
  double all = 0, squares = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    all += sums[rank];
    squares += static_cast<double>(sums[rank]) * sums[rank];
  }
  std::vector<double> scores;
  const auto others = static_cast<double>(ranks - 1);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double own = sums[rank], mean = (all - own) / others;
    const double variance = std::max(0.0, (squares - own * own) / others - mean * mean);
    scores.push_back((own - mean) / std::max(std::sqrt(variance), 1e-6 * std::max(1.0, mean)));
  }
  return scores;
}

}  // namespace sluice::minder

#include "watch/detector.h"

#include <algorithm>
#include <cmath>

namespace sluice::watch {
namespace {

double mean(const std::deque<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double known_or(double value, double otherwise) { return std::isnan(value) ? otherwise : value; }
double at_or(const std::vector<double>& values, size_t rank, double otherwise) {
  return rank < values.size() ? known_or(values[rank], otherwise) : otherwise;
}

// 1 + how far each value exceeds the median, as a part of `whole`; a part of 0 for values below the median.
std::vector<double> beyond_others(const std::vector<double>& values, double whole) {
  const double usual = median(values);
  std::vector<double> scores;
  for (const double value : values)
    scores.push_back(whole > 0 ? 1 + std::max(0.0, value - usual) / whole : kNotKnown);
  return scores;
}

}  // namespace

const char* name_of(Cause cause) {
  constexpr const char* kNames[kCauses] = {"slowdown", "copies", "host", "link"};
  return kNames[static_cast<size_t>(cause)];
}

Scores scores_of(const Figures& figures, int64_t step_ns) {
  const double step_ms = static_cast<double>(step_ns) / 1e6;
  std::vector<double> messages = figures[Figure::kAwaited];
  const double usual_host_ms = known_or(median(figures[Figure::kHost]), 0);
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const double pace = std::max(1.0, at_or(figures[Figure::kSlowdown], rank, 1));
    double late_ms = at_or(figures[Figure::kCompute], rank, 0) * (1 - 1 / pace) +
                     std::max(0.0, at_or(figures[Figure::kHost], rank, 0) - usual_host_ms);
    // A rank that is late because it waited itself is not the cause.
    for (const Figure waited :
         {Figure::kStageWait, Figure::kLaneWait, Figure::kFsdpWait, Figure::kTensorWait})
      late_ms += at_or(figures[waited], rank, 0);
    messages[rank] = std::max(0.0, messages[rank] - late_ms);
  }
  return {figures[Figure::kSlowdown], figures[Figure::kCopySlowdown],
          beyond_others(figures[Figure::kHost], step_ms), beyond_others(messages, step_ms)};
}

void Detector::Series::restart(size_t ranks, const Options& options) {
  *this = {};
  options_ = options;
  logs_.resize(ranks);
  first_.resize(ranks);
  bias_.resize(ranks, 0);
  sums_.resize(ranks, 0);
  begun_.resize(ranks, 0);
}

// Differences of a rank's successive scores give the noise; becoming slow adds a single large one. Their
// median times 1.4826 is a robust deviation of differences, √2 times that of a single score.
void Detector::Series::add(std::span<const double> scores) {
  ++steps_;
  const double most_bias = std::log(options_.most_bias);
  const double slack = std::max(std::log(options_.slack), options_.slack_deviations * noise_);
  const double most = std::max(std::log(options_.most), options_.most_deviations * noise_);
  for (size_t rank = 0; rank < scores.size(); ++rank) {
    if (!(scores[rank] > 0)) continue;
    const double own = std::log(scores[rank]);
    if (!logs_[rank].empty()) jumps_.push_back(std::abs(own - logs_[rank].back()));
    logs_[rank].push_back(own);
    if (std::ssize(logs_[rank]) > options_.window) logs_[rank].pop_front();
    const bool known = std::ssize(first_[rank]) >= options_.first_steps;
    // Until the baseline is known, all of the score may be baseline.
    const double bias = known ? bias_[rank] : most_bias;
    if (sums_[rank] == 0) begun_[rank] = steps_ - 1;
    sums_[rank] = std::max(0.0, sums_[rank] + std::min(own - bias, most) - slack);
    if (known) continue;
    first_[rank].push_back(own);
    if (std::ssize(first_[rank]) == options_.first_steps)
      bias_[rank] = std::clamp(median(first_[rank]), 0.0, most_bias);
  }
  while (jumps_.size() > static_cast<size_t>(options_.noise_steps) * logs_.size()) jumps_.pop_front();
  if (jumps_.empty()) return;
  const std::vector<double> jumps(jumps_.begin(), jumps_.end());
  noise_ = 1.4826 * median(jumps) / std::sqrt(2.0);
}

double Detector::Series::window(size_t rank) const {
  return is_known(rank) ? std::exp(mean(logs_[rank])) : 0;
}

std::vector<double> Detector::Series::windows() const {
  std::vector<double> all;
  for (size_t rank = 0; rank < logs_.size(); ++rank) all.push_back(window(rank));
  return all;
}

bool Detector::Series::is_slow(size_t rank, bool was_slow) const {
  if (!is_known(rank)) return was_slow;
  const double own = mean(logs_[rank]) - bias_[rank];
  if (was_slow) return own > std::log(options_.recovered);
  return own > std::log(options_.slow) &&
         sums_[rank] > std::max(options_.enough, options_.enough_deviations * noise_);
}

bool Detector::Series::is_suspected(size_t rank) const {
  return is_known(rank) && mean(logs_[rank]) - bias_[rank] > std::log(options_.slow);
}

std::vector<Detector::Change> Detector::add(int64_t step, const Scores& scores) {
  const size_t ranks = std::ranges::max_element(scores, {}, &std::vector<double>::size)->size();
  if (ranks == 0) return {};
  if (ranks != ranks_) {
    ranks_ = ranks;
    for (Series& series : series_) series.restart(ranks, options_);
    for (std::vector<int64_t>& since : since_) since.assign(ranks, -1);
  }
  std::vector<Change> changes;
  std::vector<char> told(ranks, 0), suspected(ranks, 0);  // by an earlier cause
  for (size_t cause = 0; cause < kCauses; ++cause) {
    series_[cause].add(scores[cause]);
    for (size_t rank = 0; rank < ranks; ++rank) {
      int64_t& since = since_[cause][rank];
      const bool was = since >= 0;
      const bool held_back = told[rank] || (suspected[rank] && !was);
      const bool slow = !held_back && series_[cause].is_slow(rank, was);
      told[rank] |= slow ? 1 : 0;
      suspected[rank] |= series_[cause].is_suspected(rank) ? 1 : 0;
      if (slow == was) continue;
      const int64_t first = slow ? std::max<int64_t>(0, step - series_[cause].since(rank) + 1) : since;
      since = slow ? first : -1;
      if (!slow) series_[cause].forget(rank);
      changes.push_back(
          {{static_cast<int>(rank), static_cast<Cause>(cause), first, series_[cause].window(rank)}, slow});
    }
  }
  return changes;
}

std::vector<Alarm> Detector::alarms() const {
  std::vector<Alarm> on;
  for (size_t cause = 0; cause < kCauses; ++cause) {
    for (size_t rank = 0; rank < since_[cause].size(); ++rank) {
      if (since_[cause][rank] < 0) continue;
      on.push_back({static_cast<int>(rank), static_cast<Cause>(cause), since_[cause][rank],
                    series_[cause].window(rank)});
    }
  }
  return on;
}

}  // namespace sluice::watch

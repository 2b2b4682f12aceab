#include "train/device_choosing.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "session/unequal_devices.h"
#include "watch/figures.h"

namespace sluice::train {
namespace {

using base::text;
using layers::GemmErrors;

constexpr size_t kSums = 2 * GemmErrors::kFigures;  // per layer: pairs of a sum and its count

constexpr double kPercentStep = 5;  // finer differences are noise
constexpr size_t kLongestWindow = 64;

double mean_of(std::span<const double> sums, GemmErrors::Figure figure) {
  const auto at = 2 * static_cast<size_t>(figure);
  return sums[at + 1] > 0 ? sums[at] / sums[at + 1] : 0;
}

}  // namespace

DeviceChoosing::DeviceChoosing(run::Planning& planning, const session::Data& data, runtime::Engine& engine,
                               survive::Control& control)
    : planning_(planning),
      data_(data),
      control_(control),
      devices_(planning.devices()),
      measures_products_(planning.config().parallel.low_precision_gemms != base::GemmFormat::kAsComputed) {
  const config::ParallelConfig& parallel = planning.config().parallel;
  const std::vector<int64_t> lengths = data.sequence_lengths();
  if (parallel.rounds_all_layers() && !lengths.empty()) {  // plans have them from the first step on
    measures_products_ = false;
    narrow_ = session::low_precision_task_of(planning.config(), lengths, control.world_size());
    const session::LowPrecisionChoice choice =
        session::choose_low_precision(*narrow_, devices_, planning.cost());
    if (control.rank() == 0) base::log_info(session::to_text(*narrow_, choice));
  }
  if (measures_products_) engine.measure_low_precision_gemms(parallel.low_precision_gemms);
}

void DeviceChoosing::observe(int64_t step, const runtime::StepResult& result,
                             std::span<const run::RankStatus> words) {
  const bool measured = std::exchange(measures_products_, false);
  if (measured) narrow_ = noise_of(result);
  const bool other_paces = take_paces(step, words);
  if (!measured && !other_paces) return;
  // Steps that may have been planned already stay as they are, on all ranks.
  from_ = run::PlanAhead::first_unplanned(step);
  std::vector<std::string> told;
  if (other_paces) {
    told.push_back(
        text("devices count as the last steps took: ", session::to_text(session::runs_of(devices_))));
  }
  std::vector<strategy::Device> devices = devices_;
  if (narrow_) {
    session::LowPrecisionChoice choice =
        session::choose_low_precision(*narrow_, std::move(devices), planning_.cost());
    told.push_back(session::to_text(*narrow_, choice));
    devices = std::move(choice.devices);
  }
  planning_.step_planners().compute_on(from_, devices);
  if (control_.rank() == 0) base::log_info(text("from step ", from_, " on ", base::join(told, "; ")));
}

session::LowPrecisionTask DeviceChoosing::noise_of(const runtime::StepResult& result) {
  const int64_t layers = planning_.config().model.resolved->layers();
  std::vector<double> sums(static_cast<size_t>(layers) * kSums, 0);
  for (size_t layer = 0; layer < result.errors.by_layer.size(); ++layer) {
    for (size_t figure = 0; figure < GemmErrors::kFigures; ++figure) {
      const GemmErrors::Sum& sum = result.errors.by_layer[layer][figure];
      sums[layer * kSums + 2 * figure] = sum.sum;
      sums[layer * kSums + 2 * figure + 1] = static_cast<double>(sum.count);
    }
  }
  control_.add_up(sums);
  session::LowPrecisionTask task =
      session::low_precision_task_of(planning_.config(), data_.sequence_lengths(), control_.world_size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto own = std::span(sums).subspan(static_cast<size_t>(layer) * kSums, kSums);
    using enum GemmErrors::Figure;
    task.noise.push_back({mean_of(own, kForward), mean_of(own, kInputGradient), mean_of(own, kWeightGradient),
                          mean_of(own, kOfActivation), mean_of(own, kOfGradient),
                          own[2 * static_cast<size_t>(kGradientSquares)]});
  }
  return task;
}

// Ranks whose median equals their plan stay as they are, and nothing is planned
// anew. Windows grow, so that varying machines don't cause new plans for ever. If
// slow ranks are planned around (watch.on_slow), their slowdowns are known there.
bool DeviceChoosing::take_paces(int64_t step, std::span<const run::RankStatus> words) {
  const config::RunConfig& config = planning_.config();
  if (config.parallel.devices != config::Devices::kMeasured ||
      config.watch.on_slow == config::SlowRankAction::kPlan)
    return false;
  if (step < from_) return false;
  paces_.resize(words.size());
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const int64_t slowdown_ppm = words[rank].sample[watch::Figure::kSlowdown];
    if (slowdown_ppm > 0) paces_[rank].push_back(static_cast<double>(slowdown_ppm) / 1e6);
  }
  const auto longest = std::ranges::max_element(paces_, {}, &std::vector<double>::size);
  if (longest == paces_.end() || longest->size() < window_) return false;
  window_ = std::min(2 * window_, kLongestWindow);
  std::vector<strategy::Device> devices = devices_;
  devices.resize(words.size());
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (paces_[rank].empty()) continue;  // idle
    int& percent = devices[rank].slowdown_percent;
    const double taken = percent * watch::median(paces_[rank]);
    percent = static_cast<int>(std::max(1.0, std::round(taken / kPercentStep)) * kPercentStep);
  }
  paces_.clear();
  if (devices == devices_) return false;
  const bool others = std::ranges::any_of(devices, [](const strategy::Device& device) {
    return device.slowdown_percent != strategy::Device{}.slowdown_percent;
  });
  if (devices_.empty() && !others) return false;
  devices_ = std::move(devices);
  return true;
}

}  // namespace sluice::train

#include "session/low_precision_gemms.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace sluice::session {

using base::text;
using strategy::Device;
using strategy::LowPrecisionGemms;

namespace {

// Compares kinds of devices by their time for the work of a whole model.
class Comparison {
 public:
  Comparison(const LowPrecisionTask& task, const cost::CostModel& cost)
      : task_(task), cost_(cost), scheme_(scheme_of(cost)) {
    std::vector<GemmNoise> noise = task.noise;
    if (noise.empty()) noise.assign(static_cast<size_t>(cost.program().blocks().size()), {1, 1, 1});
    sensitivity_ = sensitivities(noise);
  }

  int64_t takes_ns(const Device& device, std::vector<int> layers) const {
    Device narrowed = device;
    narrowed.low_precision =
        std::make_shared<const LowPrecisionGemms>(LowPrecisionGemms{task_.format, std::move(layers)});
    strategy::Pipeline pipeline{.scheme = scheme_, .ranks = {}, .device = std::move(narrowed)};
    const cost::CostModel own = cost_.on(pipeline);
    const base::Interval all{0, own.program().size()};
    return own.cell_ns(scheme_, cost::CellKind::kForward, all, task_.work) +
           own.cell_ns(scheme_, cost::CellKind::kBackward, all, task_.work);
  }

  // Layers by gradient noise per saved nanosecond, ascending; layers that save no time are left out.
  std::vector<int> by_worth(const Device& device) const {
    const int64_t wide_ns = takes_ns(device, {});
    std::vector<std::pair<double, int>> worth;
    for (const int layer : all()) {
      const int64_t saved_ns = wide_ns - takes_ns(device, {layer});
      if (saved_ns <= 0) continue;
      worth.emplace_back(sensitivity_[static_cast<size_t>(layer)] / static_cast<double>(saved_ns), layer);
    }
    std::ranges::stable_sort(worth);
    std::vector<int> order;
    for (const auto& [unused, layer] : worth) order.push_back(layer);
    return order;
  }

  // All layers with products that can be computed in fewer bits.
  std::vector<int> all() const {
    const base::Interval blocks = cost_.program().blocks();
    std::vector<int> layers;
    for (int64_t position = blocks.begin; position < blocks.end; ++position) {
      if (cost_.program().kind_at(position).takes_low_precision())
        layers.push_back(static_cast<int>(position - blocks.begin));
    }
    return layers;
  }

  // The fewest layers with which the work takes at most `until_ns`, the best by by_worth() first. All layers
  // that save time if these are too few.
  std::vector<int> fewest(const Device& device, int64_t until_ns) const {
    std::vector<int> taken;
    for (const int layer : by_worth(device)) {
      if (takes_ns(device, taken) <= until_ns) break;
      taken.push_back(layer);
    }
    // Layers save unequal times, so a later one may have made an earlier one needless.
    for (size_t i = taken.size(); i-- > 0;) {
      std::vector<int> without = taken;
      without.erase(without.begin() + static_cast<ptrdiff_t>(i));
      if (takes_ns(device, without) <= until_ns) taken = std::move(without);
    }
    return taken;
  }

 private:
  // A scheme for which the calibration has times.
  static strategy::Scheme scheme_of(const cost::CostModel& cost) {
    const cost::CostModel::Options& options = cost.options();
    if (!options.kinds_by_tp.empty()) return {.tp = options.kinds_by_tp.begin()->first};
    return {.tp = options.scheme_times.begin()->first.first,
            .pp = options.scheme_times.begin()->first.second};
  }

  const LowPrecisionTask& task_;
  const cost::CostModel& cost_;
  strategy::Scheme scheme_;
  std::vector<double> sensitivity_;
};

}  // namespace

std::vector<double> sensitivities(std::span<const GemmNoise> by_layer) {
  double all = 0;
  for (const GemmNoise& layer : by_layer) all += layer.gradient_squares;
  double up_to_here = 0;
  std::vector<double> result;
  for (const GemmNoise& layer : by_layer) {
    up_to_here += layer.gradient_squares;
    const double added = layer.forward * layer.of_activation * all +
                         layer.input_gradient * layer.of_gradient * up_to_here +
                         layer.weight_gradient * layer.gradient_squares;
    result.push_back(added / std::max(all, 1e-300));
  }
  return result;
}

LowPrecisionTask low_precision_task_of(const config::RunConfig& config, std::span<const int64_t> lengths,
                                       int world_size) {
  const int64_t mean = std::max<int64_t>(1, std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) /
                                                std::max<int64_t>(1, std::ssize(lengths)));
  const int64_t sequences = std::max<int64_t>(1, config.data.tokens_per_step / world_size / mean);
  const std::vector<int64_t> micro_batch(static_cast<size_t>(sequences), mean);
  return {.format = config.parallel.low_precision_gemms,
          .layers = config.parallel.rounds_all_layers() ? LowPrecisionTask::Layers::kAll
                                                        : LowPrecisionTask::Layers::kMinimal,
          .work = cost::Work::of(micro_batch, config.model.resolved->window()),
          .world_size = world_size};
}

LowPrecisionChoice choose_low_precision(const LowPrecisionTask& task, std::vector<Device> devices,
                                        const cost::CostModel& cost) {
  LowPrecisionChoice choice;
  const bool all = task.layers == LowPrecisionTask::Layers::kAll;
  if (devices.empty() && all) devices.resize(static_cast<size_t>(task.world_size));
  const Comparison comparison(task, cost);
  const auto fastest = std::ranges::min_element(devices, {}, &Device::slowdown_percent);
  const int64_t fastest_ns = fastest == devices.end() ? 0 : comparison.takes_ns(*fastest, {});
  std::vector<std::pair<int, std::shared_ptr<const LowPrecisionGemms>>> by_slowdown;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    Device& device = devices[rank];
    const auto known =
        std::ranges::find(by_slowdown, device.slowdown_percent, [](const auto& kind) { return kind.first; });
    if (known != by_slowdown.end()) {
      device.low_precision = known->second;
      continue;
    }
    std::vector<int> layers = all ? comparison.all() : comparison.fewest(device, fastest_ns);
    std::ranges::sort(layers);
    const int64_t narrow_ns = comparison.takes_ns(device, layers);
    if (!layers.empty()) {
      choice.kinds.push_back({static_cast<int>(rank), static_cast<int>(layers.size()),
                              comparison.takes_ns(device, {}), narrow_ns, fastest_ns});
      device.low_precision =
          std::make_shared<const LowPrecisionGemms>(LowPrecisionGemms{task.format, std::move(layers)});
    }
    by_slowdown.emplace_back(device.slowdown_percent, device.low_precision);
  }
  choice.devices = std::move(devices);
  return choice;
}

CandidateDecorator on_devices(std::span<const Device> devices) {
  return {[own = std::vector(devices.begin(), devices.end())](plan::PlannerOptions& options) {
    options.devices = own;
  }};
}

std::vector<Device> with_low_precision(const config::RunConfig& config, std::span<const int64_t> lengths,
                                       int world_size, std::vector<Device> devices,
                                       const cost::CostModel& cost) {
  if (config.parallel.low_precision_gemms == base::GemmFormat::kAsComputed || lengths.empty()) return devices;
  return choose_low_precision(low_precision_task_of(config, lengths, world_size), std::move(devices), cost)
      .devices;
}

std::string to_text(const LowPrecisionTask& task, const LowPrecisionChoice& choice) {
  std::vector<std::string> kinds;
  for (const LowPrecisionChoice::Kind& kind : choice.kinds) {
    kinds.push_back(text(kind.layers, " layers of devices as rank ", kind.first_rank,
                         "'s, whose micro-batch of ", task.work.tokens, " tokens takes ",
                         base::human_duration(kind.low_precision_ns), " instead of ",
                         base::human_duration(kind.full_precision_ns), ", the fastest's ",
                         base::human_duration(kind.fastest_ns)));
  }
  const std::string products = text(name_of(task.format), " products in ");
  std::string told = kinds.empty() ? text("no layer has ", name_of(task.format),
                                          " products: no device is slower, or they save nothing")
                                   : products + base::join(kinds, "; in ");
  const std::vector<double> sensitivity = sensitivities(task.noise);
  if (sensitivity.empty()) return told;
  const auto [least, most] = std::ranges::minmax_element(sensitivity);
  return text(told, "; rounding adds most by layer ", most - sensitivity.begin(), " and least by layer ",
              least - sensitivity.begin(), ", a ", std::llround(*most / std::max(*least, 1e-30)),
              "th of that");
}

}  // namespace sluice::session

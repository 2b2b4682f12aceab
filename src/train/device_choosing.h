// Measures steps to choose each rank's device properties for plans. One is its
// slowdown (parallel.devices = "measured"). The other is the layers whose products
// use fewer bits, chosen by the error that rounding adds (train.gemm_dtype). Before
// the first steps a short probe measures slowdowns, and all layers count as alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "run/planning.h"
#include "run/rank_monitor.h"
#include "runtime/engine.h"
#include "session/low_precision_gemms.h"

namespace sluice::train {

// The same on every rank.
class DeviceChoosing {
 public:
  // All arguments outlive this. The next step measures products if they may use fewer bits.
  DeviceChoosing(run::Planning& planning, const session::Data& data, runtime::Engine& engine,
                 survive::Control& control);

  // Collective after each step. `words`: all ranks' statuses.
  // Plans of later steps use the changed properties.
  void observe(int64_t step, const runtime::StepResult& result, std::span<const run::RankStatus> words);

 private:
  session::LowPrecisionTask noise_of(const runtime::StepResult& result);
  bool take_paces(int64_t step, std::span<const run::RankStatus> words);

  run::Planning& planning_;
  const session::Data& data_;
  survive::Control& control_;
  std::vector<strategy::Device> devices_;  // by rank, without low-precision layers; empty: alike
  int64_t from_ = 0;                       // the first step that is planned with them
  bool measures_products_ = false;         // whether the current step measures them
  std::optional<session::LowPrecisionTask> narrow_;
  // By rank: computing time over planned time of steps since from_; `window_` of them decide.
  std::vector<std::vector<double>> paces_;
  size_t window_ = 8;
};

}  // namespace sluice::train

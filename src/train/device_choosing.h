// Chooses from measured steps what plans count with for each rank's device: its pace (parallel.devices =
// "measured"), and the layers that compute their products in fewer bits, by the error that rounding adds
// (train.gemm_dtype). Before the first steps a short probe measures the pace, and all layers count as
// alike.
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
  // All outlive it. The next step measures products, where they are to be narrow.
  DeviceChoosing(run::Planning& planning, const session::Data& data, runtime::Engine& engine,
                 survive::Control& control);

  // Collective behind each step, with what all ranks said of it: plans of later steps count with what has
  // changed.
  void observe(int64_t step, const runtime::StepResult& result, std::span<const run::RankStatus> words);

 private:
  session::LowPrecisionTask noise_of(const runtime::StepResult& result);
  bool take_paces(int64_t step, std::span<const run::RankStatus> words);

  run::Planning& planning_;
  const session::Data& data_;
  survive::Control& control_;
  std::vector<strategy::Device> devices_;  // by rank, without narrow products; empty: alike
  int64_t from_ = 0;                       // the first step that is planned with them
  bool measures_products_ = false;         // the step under way does
  std::optional<session::LowPrecisionTask> narrow_;
  // By rank, computed over planned of the steps since then; so many of them say what devices take.
  std::vector<std::vector<double>> paces_;
  size_t window_ = 8;
};

}  // namespace sluice::train

// Where a run's cost model comes from.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "comm/transport.h"
#include "config/run_config.h"
#include "cost/calibration.h"
#include "profile/probe.h"
#include "runtime/precision.h"
#include "survive/control.h"

namespace sluice::run {

struct CalibrationRequest {
  const config::RunConfig& config;  // parallel.calibration: a file, "analytic" or "auto"
  const base::Json& earlier;        // a checkpoint's calibration, which wins over "auto"; null: none
  runtime::Precision precision;
  c10::Device device = c10::kCPU;
  int64_t device_bytes = 0;  // what a rank may use, margin taken off; the same on all ranks
};

// What a probe of the run's model, precision and device is to measure.
profile::ProbeOptions probe_options(const CalibrationRequest& request, std::vector<int> tp_degrees);

// A checkpoint's calibration; nothing when there is none, or when it holds figures that no machine has.
std::optional<cost::Calibration> earlier_calibration(const base::Json& json);

// Collective. "auto" takes an earlier calibration where it covers the TP degrees in use, else measures once:
// rank 0's numbers count everywhere. Memory figures follow this run's precision and device. InputError as
// cost::calibration_from_json, or when a TP degree is not covered or the file is of another model.
cost::Calibration calibrate(const CalibrationRequest& request, comm::Transport& transport,
                            survive::Control& control);

// Collective: where parallel.devices says to measure them, what ranks compute on, by rank; none where they
// are alike to a tenth. Rank 0 is what the calibration prices.
std::vector<strategy::Device> measured_devices(const CalibrationRequest& request, survive::Control& control);

// Without measuring: a file, or assumed rates for "analytic" and "auto".
cost::Calibration unmeasured_calibration(const CalibrationRequest& request, int world_size);

}  // namespace sluice::run

// The source of a run's cost model.
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
  const base::Json& earlier;        // a checkpoint's calibration, preferred by "auto"; null: none
  runtime::Precision precision;
  c10::Device device = c10::kCPU;
  int64_t device_bytes = 0;  // usable by a rank, safety margin taken off; the same on all ranks
};

// The measurements that a probe of the run's model, precision and device has to make.
profile::ProbeOptions probe_options(const CalibrationRequest& request, std::vector<int> tp_degrees);

// A checkpoint's calibration; nothing if there is none, or if its figures are impossible for any machine.
std::optional<cost::Calibration> earlier_calibration(const base::Json& json);

// Collective: profile::probe, with its progress told by the activity.
profile::ProbeResult measure_machine(profile::ProbeOptions options, comm::Transport& transport,
                                     survive::Activity& activity);

// Collective. "auto" takes an earlier calibration if it covers the TP degrees in use, else measures once;
// rank 0's numbers hold for all ranks. Memory figures follow this run's precision and device. InputError as
// cost::calibration_from_json, or if a TP degree is missing or the file is of another model.
cost::Calibration calibrate(const CalibrationRequest& request, comm::Transport& transport,
                            survive::Control& control);

// Collective: the measured speed of each rank's device, if parallel.devices asks for a measurement. Empty if
// ranks differ by less than a tenth. The calibration prices rank 0's device.
std::vector<strategy::Device> measured_devices(const CalibrationRequest& request, survive::Control& control);

// The calibration without measuring: a file, or assumed rates for "analytic" and "auto".
cost::Calibration unmeasured_calibration(const CalibrationRequest& request, int world_size);

}  // namespace sluice::run

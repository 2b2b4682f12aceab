// Where a run's cost model comes from.
#pragma once

#include <vector>

#include "comm/transport.h"
#include "config/run_config.h"
#include "cost/calibration.h"
#include "train/control.h"

namespace sluice::train {

struct CalibrationRequest {
  const config::RunConfig& config;  // parallel.calibration: a file, "analytic" or "auto"
  const base::Json& earlier;        // a checkpoint's calibration, which wins over "auto"; null: none
  std::vector<int> tp_degrees;      // that must be covered
  int64_t device_bytes = 0;         // what a rank may use, margin taken off
};

// Collective: "auto" measures once, rank 0's numbers count everywhere. InputError as
// cost::calibration_from_json, or when a TP degree is not covered or the file is of another model.
cost::Calibration calibrate(const CalibrationRequest& request, comm::Transport& transport, Control& control);

}  // namespace sluice::train

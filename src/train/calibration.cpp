#include "train/calibration.h"

#include "base/error.h"
#include "base/text.h"
#include "cost/analytic.h"

namespace sluice::train {

namespace {

cost::AnalyticMemory analytic_memory(const CalibrationRequest& request) {
  cost::AnalyticMemory memory;
  memory.device_bytes = request.device_bytes;
  if (request.config.train.dtype == "bfloat16") memory.element_bytes = 2;
  if (request.config.train.dtype == "float64") {
    memory.element_bytes = 8;
    memory.accumulator_bytes = 8;
    memory.owner_bytes_per_parameter = 32;
  }
  return memory;
}

cost::Calibration analytic(const CalibrationRequest& request) {
  return {"analytic", "assumed rates of a CPU core",
          cost::analytic_options(*request.config.model.shape, cost::Rates{}, analytic_memory(request),
                                 request.tp_degrees, request.config.parallel.gpus_per_node)};
}

void require_covering(const cost::Calibration& calibration, const CalibrationRequest& request,
                      const std::string& name) {
  if (calibration.options.shape != *request.config.model.shape) {
    throw base::InputError(
        base::text(name, " was measured for another model: set parallel.calibration = \"auto\""));
  }
  for (const int tp : request.tp_degrees) {
    if (calibration.options.layer_by_tp.contains(tp)) continue;
    throw base::InputError(base::text(name, " has no times for tp ", tp,
                                      ": set parallel.calibration = \"auto\" or change parallel.strategies"));
  }
}

}  // namespace

cost::Calibration calibrate(const CalibrationRequest& request, comm::Transport& transport, Control& control) {
  const std::string& source = request.config.parallel.calibration;
  cost::Calibration calibration;
  std::string name = source;
  if (source == "auto" && !request.earlier.is_null()) {
    name = "the checkpoint's calibration";
    calibration = cost::calibration_from_json(request.earlier, name);
  } else if (source == "auto" || source == "analytic") {
    (void)transport;
    (void)control;
    calibration = analytic(request);
  } else {
    calibration = cost::calibration_from_json(base::read_json(source), source);
  }
  require_covering(calibration, request, name);
  calibration.options.memory.device_bytes = request.device_bytes;
  calibration.options.gpus_per_node = request.config.parallel.gpus_per_node;
  return calibration;
}

}  // namespace sluice::train

#include "run/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "ops/low_precision_gemm.h"
#include "profile/device_speed.h"
#include "profile/probe.h"
#include "session/run_planning.h"

namespace sluice::run {

namespace {

constexpr const char* kEarlier = "the checkpoint's calibration";

// Generation uses the number of ranks that suits it, so TP degree 1 is measured whatever trains.
std::vector<int> measured_degrees(const config::RunConfig& config, int world_size) {
  std::vector<int> degrees = session::tensor_parallel_degrees(config, world_size);
  if (config.generates() && std::ranges::count(degrees, 1) == 0) degrees.insert(degrees.begin(), 1);
  return degrees;
}

bool covers(const cost::Calibration& calibration, const std::vector<int>& tp_degrees,
            base::GemmFormat narrow) {
  const cost::CostModel model(calibration.options);
  return std::ranges::all_of(tp_degrees, [&](int tp) {
    return calibration.options.kinds_by_tp.contains(tp) &&
           (narrow == base::GemmFormat::kAsComputed || model.knows(narrow, {.tp = tp}));
  });
}

void require_model(const cost::Calibration& calibration, const CalibrationRequest& request,
                   const std::string& name) {
  const std::string fault = cost::model_fault(calibration, *request.config.model.resolved);
  if (fault.empty()) return;
  throw base::InputError(base::text(name, " is of another model: ", fault,
                                    ": set parallel.calibration = \"auto\" to measure this one"));
}

// For example, a program that knew less of the model wrote the checkpoint and planned with what it knew.
bool is_of_another_model(const cost::Calibration& earlier, const CalibrationRequest& request) {
  const std::string fault = cost::model_fault(earlier, *request.config.model.resolved);
  if (!fault.empty())
    base::log_warning(base::text(kEarlier, " is of another model: ", fault, ": measuring the machine again"));
  return !fault.empty();
}

// InputError if the device has no products in the format: rounding would then lose accuracy for nothing.
void require_products(const CalibrationRequest& request) {
  const base::GemmFormat format = request.config.parallel.low_precision_gemms;
  if (ops::multiplies(format, request.device)) return;
  throw base::InputError(
      base::text("train.gemm_dtype is ", name_of(format), ", of which ", request.device.str(),
                 " has no products (an L40S, an H100 and newer have): ", "choose none, int8 or bfloat16"));
}

// The planner itself compares tables of schemes with the strategies.
void require_covering(const cost::Calibration& calibration, const std::vector<int>& tp_degrees,
                      const std::string& name) {
  if (!calibration.options.scheme_times.empty()) return;
  for (const int tp : tp_degrees) {
    if (calibration.options.kinds_by_tp.contains(tp)) continue;
    throw base::InputError(base::text(name, " has no times for tp ", tp,
                                      ": set parallel.calibration = \"auto\" or change parallel.strategies"));
  }
}

}  // namespace

std::optional<cost::Calibration> earlier_calibration(const base::Json& json) {
  if (json.is_null()) return std::nullopt;
  try {
    return cost::calibration_from_json(json, kEarlier);
  } catch (const base::InputError& error) {
    base::log_warning(error.what());
    return std::nullopt;
  }
}

profile::ProbeOptions probe_options(const CalibrationRequest& request, std::vector<int> tp_degrees) {
  profile::ProbeOptions probe;
  probe.model = *request.config.model.resolved;
  probe.precision = request.precision;
  probe.device = request.device;
  probe.tp_degrees = std::move(tp_degrees);
  probe.context_length = config::longest_context(request.config);
  probe.device_bytes = request.device_bytes;
  probe.moments = request.config.optimizer.moments();
  probe.topology = request.config.parallel.gpus_per_node;
  probe.low_precision = request.config.parallel.low_precision_gemms;
  probe.decodes = request.config.generates();
  return probe;
}

namespace {

cost::Calibration with_machine(cost::Calibration calibration, const CalibrationRequest& request) {
  const cost::AnalyticMemory memory = profile::analytic_memory(probe_options(request, {}));
  cost::MemoryModel& model = calibration.options.memory;
  model.device_bytes = memory.device_bytes;
  model.element_bytes = memory.element_bytes;
  model.accumulator_bytes = memory.accumulator_bytes;
  model.owner_bytes_per_parameter = memory.owner_bytes_per_parameter;
  model.master_bytes = memory.master_bytes;
  if (model.logits_chunk_bytes > 0) model.logits_chunk_bytes = memory.logits_chunk_bytes;
  cost::move_to_nodes_of(request.config.parallel.gpus_per_node, calibration.options);
  calibration.options.model = *request.config.model.resolved;
  return calibration;
}

}  // namespace

cost::Calibration unmeasured_calibration(const CalibrationRequest& request, int world_size) {
  const std::string& source = request.config.parallel.calibration;
  if (source == "auto" || source == "analytic") {
    return {"analytic", cost::analytic_source(*request.config.model.resolved, "a CPU core"),
            cost::analytic_options(*request.config.model.resolved, cost::Rates{},
                                   profile::analytic_memory(probe_options(request, {})),
                                   measured_degrees(request.config, world_size),
                                   request.config.parallel.gpus_per_node)};
  }
  const std::vector<int> tp_degrees = session::tensor_parallel_degrees(request.config, world_size);
  cost::Calibration calibration = cost::find_calibration(source);
  require_model(calibration, request, source);
  require_covering(calibration, tp_degrees, source);
  return with_machine(std::move(calibration), request);
}

profile::ProbeResult measure_machine(profile::ProbeOptions options, comm::Transport& transport,
                                     survive::Activity& activity) {
  const auto measuring = activity.shared("measuring this machine");
  options.progress = [&activity](int64_t done, int64_t all) {
    activity.progress(base::text(done, " of ", base::human_count(all, "probe", "probes")));
  };
  return profile::probe(options, transport);
}

cost::Calibration calibrate(const CalibrationRequest& request, comm::Transport& transport,
                            survive::Control& control) {
  cost::Calibration calibration;
  std::vector<int> tp_degrees;
  bool measure = false;
  control.together("reading the calibration", [&] {
    require_products(request);
    if (request.config.parallel.calibration != "auto") {
      calibration = unmeasured_calibration(request, control.world_size());
      return;
    }
    tp_degrees = measured_degrees(request.config, control.world_size());
    const std::optional<cost::Calibration> earlier = earlier_calibration(request.earlier);
    measure = !earlier || is_of_another_model(*earlier, request) ||
              !covers(*earlier, tp_degrees, request.config.parallel.low_precision_gemms);
    if (!measure) calibration = with_machine(*earlier, request);
  });
  if (!measure) return calibration;
  return measure_machine(probe_options(request, std::move(tp_degrees)), transport, control.activity())
      .calibration;
}

std::vector<strategy::Device> measured_devices(const CalibrationRequest& request, survive::Control& control) {
  if (request.config.parallel.devices == config::Devices::kUniform) return {};
  constexpr double kWindowNs = 2e8;  // several scheduling periods of a container's CPU limit
  constexpr int kStep = 5;           // percent: finer differences are noise
  constexpr int kWorthIt = 10;       // percent
  const auto measuring = control.activity().shared("measuring the devices");
  control.barrier();
  const std::vector<double> times_ns = control.gather(profile::gemm_ns(request.device, kWindowNs));
  std::vector<strategy::Device> devices;
  bool differ = false;
  for (const double time_ns : times_ns) {
    const double pace = 100 * time_ns / times_ns.front() / kStep;
    devices.push_back({.slowdown_percent = std::max(kStep, static_cast<int>(std::lround(pace)) * kStep)});
    differ = differ || std::abs(devices.back().slowdown_percent - 100) >= kWorthIt;
  }
  if (!differ) devices.clear();
  return devices;
}

}  // namespace sluice::run

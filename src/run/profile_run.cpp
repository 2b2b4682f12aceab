#include "run/profile_run.h"

#include <optional>
#include <utility>

#include "run/calibration.h"
#include "run/precision.h"
#include "run/run_context.h"
#include "session/run_planning.h"
#include "survive/start_notices.h"

namespace sluice::run {

profile::ProbeResult profile_run(const RunOptions& options, int64_t budget_ns) {
  auto* context = new RunContext(options);  // on failure never destroyed: it would wait for lost peers
  profile::ProbeResult result;
  context->peers().guard([&] {
    context->open_machine();
    const config::RunConfig& config = context->agreed().config;
    profile::ProbeOptions probe =
        probe_options({config,
                       {},
                       precision_of(config.train),
                       context->device().device(),
                       context->device().memory_bytes()},
                      session::tensor_parallel_degrees(config, options.launch.world_size));
    probe.lengths = profile::profile_lengths(config::longest_context(config));
    probe.budget_ns = budget_ns;
    probe.decodes = true;
    std::optional<survive::StartNotices> notices;
    if (options.launch.rank == 0) notices.emplace(context->activity());
    result = measure_machine(std::move(probe), context->device_transport(), context->activity());
    context->peers().leave();
  });
  delete context;
  return result;
}

}  // namespace sluice::run

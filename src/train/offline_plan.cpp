#include "train/offline_plan.h"

#include "base/error.h"
#include "config/strategy_file.h"
#include "profile/device.h"
#include "train/calibration.h"
#include "train/candidates.h"
#include "train/data.h"
#include "train/precision.h"
#include "transport/launch.h"

namespace sluice::train {

namespace {

int needed_ranks(const config::RunConfig& config) {
  const int ranks = config::ranks_needed(config.parallel.strategies);
  if (ranks == 0) {
    throw base::InputError(
        "parallel.strategies is \"auto\", which depends on the number of ranks: give --ranks N");
  }
  return ranks;
}

}  // namespace

OfflinePlanning offline_planning(config::RunConfig config, int ranks) {
  if (ranks == 0) ranks = needed_ranks(config);
  configured_strategies(config, ranks);
  const Data data = open_data(config);
  transport::Launch launch;
  launch.world_size = launch.local_size = ranks;
  config.train.device = "cpu";
  const profile::RankDevice device = profile::rank_device(config.train, config.memory, launch);
  const cost::Calibration calibration = unmeasured_calibration(
      {config, base::Json(), precision_of(config.train.dtype), device.device, device.memory_bytes}, ranks);
  return {make_planner(config, data, cost::CostModel(calibration.options), ranks), data.sampler()};
}

}  // namespace sluice::train

// The configuration of a run, once the ranks know that all were given the same.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "model/parameters.h"
#include "profile/device.h"
#include "run/run_options.h"
#include "survive/control.h"

namespace sluice::run {

struct AgreedConfig {
  config::RunConfig config;  // names a model and dtype; strategies are the requested ones that fit the ranks
  model::ParameterTable table;             // for config.model
  std::vector<profile::DeviceCard> cards;  // the device of each rank
};

// Collective. Throws on every rank: a failure of one rank before it met the others; InputError for an
// impossible model or strategies; the errors of profile::device_card. InputError also if a rank's options
// differ from rank 0's, or its kind of device does.
AgreedConfig agreed_config(const RunOptions& options, survive::Control& control);

}  // namespace sluice::run

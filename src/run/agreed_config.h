// What the ranks of a run were told, once they know that all were told the same.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "model/parameters.h"
#include "profile/device.h"
#include "run/run_options.h"
#include "survive/control.h"

namespace sluice::run {

struct AgreedConfig {
  config::RunConfig config;  // names its model and dtype; strategies are those asked for, which fit the ranks
  model::ParameterTable table;             // of the model
  std::vector<profile::DeviceCard> cards;  // what the ranks compute on
};

// Collective. Throws on every rank: what went wrong on one before it met the others, InputError for a model
// or strategies that cannot be, as profile::device_card, and when a rank was told anything else than rank 0
// or computes on another kind of device.
AgreedConfig agreed_config(const RunOptions& options, survive::Control& control);

}  // namespace sluice::run

#include "run/agreed_config.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config_file.h"
#include "run/epochs.h"
#include "session/run_planning.h"

namespace sluice::run {

using base::text;

namespace {

// A membership may have fewer ranks than the run was configured for.
void drop_strategies_of_more_ranks(const RunOptions& options, config::RunConfig& config) {
  std::vector<std::string>& strategies = config.parallel.strategies;
  if (options.membership_number() == 0 || strategies.empty()) return;
  try {
    session::configured_strategies(config, options.launch.world_size);
  } catch (const base::InputError& error) {
    if (options.launch.rank == 0)
      base::log_warning(text("parallel.strategies do not fit: ", error.what(), "; others are proposed"));
    strategies.clear();
    config.parallel.select = {};
  }
}

// Everything that decides the numbers must be the same on all ranks: a different learning rate would train
// each owner slice differently, a different eval_every would pair up different collectives.
void require_same(const config::RunConfig& config, survive::Control& control) {
  config::RunConfig shared = config;
  shared.train.threads = 0;
  shared.log = {};
  shared.log.trace_steps = config.log.trace_steps;
  control.require_same("comparing configurations", base::hash_bytes(config::to_toml(shared)), [](int other) {
    return text("rank ", other,
                " has another configuration than rank 0: give all ranks the same file and --set options");
  });
}

// The kind of device decides what "auto" computes in.
std::vector<profile::DeviceCard> choose_devices(const RunOptions& options, config::RunConfig& config,
                                                survive::Control& control) {
  profile::DeviceCard own;
  control.together("choosing the device", [&] { own = profile::device_card(config.train, options.launch); });
  control.require_same("choosing devices", own.on_gpu() ? 1 : 0, [](int other) {
    return text("rank ", other, " computes on another kind of device than rank 0: ",
                "set train.device = \"cpu\", or see with `sluice doctor` what that machine lacks");
  });
  config::resolve_dtype(config, own.on_gpu());
  return control.gather(own);
}

}  // namespace

AgreedConfig agreed_config(const RunOptions& options, survive::Control& control) {
  AgreedConfig agreed;
  control.together("reading the configuration", [&] {
    if (options.failure) std::rethrow_exception(options.failure);
    agreed.config = options.config;
    config::resolve_model(agreed.config);
    drop_strategies_of_more_ranks(options, agreed.config);
    session::configured_strategies(agreed.config, options.launch.world_size);
  });
  require_same(agreed.config, control);
  agreed.cards = choose_devices(options, agreed.config, control);
  agreed.table = model::parameter_table(*agreed.config.model.resolved);
  control.together("counting the steps of train.epochs",
                   [&] { resolve_epochs(agreed.config, options.corpora); });
  return agreed;
}

}  // namespace sluice::run

#include "run/run_start.h"

#include <algorithm>

#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "config/doubts.h"
#include "rl/prompt_notes.h"
#include "session/data_notes.h"

namespace sluice::run {

namespace {

// Each rank opens its own copy, since files may differ between ranks: for example on a node's own disk.
session::Data opened(const config::RunConfig& config, const corpus::IndexedOptions& corpora,
                     survive::Control& control) {
  session::Data data;
  control.together("opening the corpora", [&] {
    data = session::open_data(config, corpora);
    session::require_tokenizer(config, data);
    session::require_rows(config, data);
  });
  return data;
}

// Warns once per run of documents and settings that are left out, cut or without effect.
void tell_notes(const config::RunConfig& config, const session::Data& data) {
  const session::DataPhase& first = data.phases.front();
  if (config.train.epochs > 0)
    base::log_info(
        base::text("train.epochs is ", config.train.epochs, ": the run has ", config.train.steps, " steps"));
  for (const std::vector<std::string>& lines : {config::doubts(config), session::data_notes(config, data),
                                                rl::prompt_notes(config, first.training, first.rejected)}) {
    for (const std::string& line : lines) base::log_warning(line);
  }
}

// The training corpora of each phase, compared over the ranks.
std::vector<std::vector<corpus::CorpusIdentity>> compared(const session::Data& data,
                                                          survive::Control& control) {
  std::vector<std::vector<corpus::CorpusIdentity>> corpora;
  base::CanonicalBytes all;
  control.together("reading the corpora", [&] {
    for (const session::DataPhase& phase : data.phases) {
      corpora.push_back(corpus::identities(phase.training));
      all.add(corpus::to_json(corpora.back()).dump());
    }
  });
  control.require_same("comparing corpora", all.hash(), [](int other) {
    return base::text("the corpora of rank ", other,
                      " have other tokens than those of rank 0: ", "copy the same files to all machines");
  });
  return corpora;
}

Resumed found(const RunOptions& options, const AgreedConfig& agreed, Peers& peers) {
  if (!options.dry_run) peers.take_directory();
  return {options, agreed, peers.control()};
}

}  // namespace

RunStart::RunStart(const RunOptions& options, const AgreedConfig& agreed, Peers& peers)
    : data_(opened(agreed.config, options.corpora, peers.control())),
      corpora_(compared(data_, peers.control())),
      resumed_(found(options, agreed, peers)) {
  peers.control().together("looking through the corpora", [&] {
    if (options.launch.rank == 0 && options.membership_number() == 0) tell_notes(agreed.config, data_);
  });
  const checkpoint::Checkpoint* checkpoint = resumed_.checkpoint();
  if (checkpoint == nullptr || resumed_.from_snapshot() || state().corpora.empty()) return;
  peers.control().together("comparing corpora with the checkpoint's", [&] {
    const int64_t last_step = std::max<int64_t>(0, state().step - 1);
    corpus::require_same(state().corpora, corpora_at(last_step), data_.at(last_step).training,
                         checkpoint->directory().string());
  });
}

session::PhasedSampler RunStart::sampler() const {
  session::PhasedSampler sampler = data_.sampler();
  if (state().sampler) {
    sampler.restore(*state().sampler);
  } else {
    sampler.skip(state().step);
  }
  return sampler;
}

}  // namespace sluice::run

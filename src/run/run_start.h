// What a run begins with: the documents that it learns from, and what an earlier part of it left.
#pragma once

#include <cstdint>
#include <vector>

#include "run/agreed_config.h"
#include "run/peers.h"
#include "run/resume.h"
#include "run/run_options.h"
#include "session/data.h"

namespace sluice::run {

class RunStart {
 public:
  // Collective; all outlive it. Takes the run directory, unless this is a dry run. Throws on every rank, when
  // ranks read other tokens or the checkpoint has seen others, too.
  RunStart(const RunOptions& options, const AgreedConfig& agreed, Peers& peers);

  const session::Data& data() const { return data_; }
  // Those trained on in a step.
  const std::vector<corpus::CorpusIdentity>& corpora_at(int64_t step) const {
    return corpora_[data_.index_at(step)];
  }
  // Of what the run goes on from: zero where it goes on from nothing.
  const RunState& state() const { return resumed_.state(); }
  Resumed& resumed() { return resumed_; }
  const Resumed& resumed() const { return resumed_; }
  session::PhasedSampler sampler() const;  // as the checkpoint left it

 private:
  session::Data data_;
  std::vector<std::vector<corpus::CorpusIdentity>> corpora_;  // of each phase of data_, for training
  Resumed resumed_;
};

}  // namespace sluice::run

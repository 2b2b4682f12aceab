// The start of a run: the documents that it learns from, and the state that an earlier part of it left.
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
  // Collective; all arguments outlive it. Takes the run directory, unless this is a dry run. Throws on every
  // rank, also if ranks read different tokens or the checkpoint was trained on others.
  RunStart(const RunOptions& options, const AgreedConfig& agreed, Peers& peers);

  const session::Data& data() const { return data_; }
  // The corpora that a step trains on.
  const std::vector<corpus::CorpusIdentity>& corpora_at(int64_t step) const {
    return corpora_[data_.index_at(step)];
  }
  // The state that the run resumes from; zero if there is none.
  const RunState& state() const { return resumed_.state(); }
  Resumed& resumed() { return resumed_; }
  const Resumed& resumed() const { return resumed_; }
  session::PhasedSampler sampler() const;  // in the checkpoint's state

 private:
  session::Data data_;
  std::vector<std::vector<corpus::CorpusIdentity>> corpora_;  // for training, by phase of data_
  Resumed resumed_;
};

}  // namespace sluice::run

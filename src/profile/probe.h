// Calibration: times this machine's layers, links and optimizer on the ranks that will train, and fits a cost
// model to them. A run does so briefly, `sluice profile` longer and at more lengths.
//
// All ranks work at once, as in training, so the numbers include contention for cores and memory bandwidth
// (graph/shared_cores.h prices steps in which some ranks wait). TP groups are real ones, aligned blocks of
// ranks: waiting for each other is part of a layer's time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/moment_format.h"
#include "comm/transport.h"
#include "cost/analytic.h"
#include "cost/calibration.h"
#include "cost/fit.h"
#include "model/model.h"
#include "profile/stage_probe.h"
#include "runtime/precision.h"

namespace sluice::profile {

struct ProbeOptions {
  model::Model model;
  runtime::Precision precision;
  c10::Device device = c10::kCPU;
  std::vector<int> tp_degrees{1};
  int64_t context_length = 2048;
  int64_t logits_chunk_bytes = 0;  // 0: the device's default (layers/head.h)
  int64_t device_bytes = 0;        // usable by a rank, without the margin
  strategy::Topology topology;
  base::MomentFormat moments = base::MomentFormat::kWide;  // the optimizer's
  // Sequence lengths of each timed micro-batch; empty: probe_lengths(context_length).
  std::vector<std::vector<int64_t>> lengths;
  // The format in which GEMMs of blocks are timed additionally.
  base::GemmFormat low_precision = base::GemmFormat::kAsComputed;
  bool decodes = false;               // whether engine steps are timed, too
  std::string name = "probe";         // prefix of its communicators' names, unique on a transport
  int64_t budget_ns = 3'000'000'000;  // target; a few repetitions run in any case
  // Called after each of the probe's parts, which take about equal times; null: nobody asks.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

// A run's memory on a device under these options, as cost models count it.
cost::AnalyticMemory analytic_memory(const ProbeOptions& options);

// Measurements of one kind of work, and the curve fitted to them.
struct KindFit {
  std::string kind;                   // "forward", "head", …
  std::vector<cost::Sample> samples;  // one for each micro-batch
  cost::Fit fit;
};

struct ProbeResult {
  cost::Calibration calibration;                   // bitwise the same on every rank
  std::map<int, std::vector<KindFit>> fits_by_tp;  // this rank's
};

// Collective over all ranks; all use rank 0's figures. Call it with the thread count of training. InputError
// if a TP degree cannot divide the model or exceeds the world size.
ProbeResult probe(const ProbeOptions& options, comm::Transport& transport);

// Costs of engine steps by kind on the ranks of a TP group, as its first rank measures them. Takes about a
// second for a small model. Collective over the group.
std::vector<cost::DecodeCost> probe_decoding(const StageProbe::Options& options,
                                             const layers::TensorParallel& parallel);

// The lengths of the timed micro-batches: long and short sequences at equal and at different sums. A probe
// before a run stays at or below 2,048 tokens; longer sequences are extrapolated by the fit.
std::vector<std::vector<int64_t>> probe_lengths(int64_t context_length);
// Lengths for a thorough profile: single sequences of 1/1 to 1/32 of the context, and packs of short ones.
std::vector<std::vector<int64_t>> profile_lengths(int64_t context_length);

// Fits each kind's times: times[i][r] is repetition r of lengths[i]; `program` has the kinds. The shortest of
// the repetitions are fitted, so that a disturbed repetition has no effect. Before that, those of a
// micro-batch are scaled by the machine's load: the median over the shortest repetition, for all kinds
// together. With more ranks than cores most kinds run undisturbed while some wait, so the kinds' loads must
// be taken together. A weight gradient is the fused backward minus the input gradient, clamped to between
// half and all of its own time. REQUIRES: at least one repetition of each.
struct FittedTimes {
  std::vector<cost::OperationTimes> kinds;  // in the order of model::Program::kinds()
  std::vector<KindFit> fits;
};
FittedTimes fit_times(const std::vector<std::vector<int64_t>>& lengths,
                      const std::vector<std::vector<StageTimes>>& times, const model::Program& program);

}  // namespace sluice::profile

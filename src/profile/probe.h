// Calibration: times this machine's layers, links and optimiser on the ranks that will train, and fits a cost
// model to them; briefly before a run, longer and at more lengths for `sluice profile`.
//
// All ranks work at once, as they do in training, so what ranks take from each other (cores, memory
// bandwidth) is in the numbers (graph/shared_cores.h: what a step takes in which some of them wait). TP
// groups are real ones, aligned blocks of ranks: waiting for each other is part of a layer's time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/moment_format.h"
#include "comm/transport.h"
#include "cost/analytic.h"
#include "cost/calibration.h"
#include "cost/fit.h"
#include "model/shape.h"
#include "profile/stage_probe.h"
#include "runtime/precision.h"

namespace sluice::profile {

struct ProbeOptions {
  model::Shape shape;
  runtime::Precision precision;
  c10::Device device = c10::kCPU;
  std::vector<int> tp_degrees{1};
  int64_t context_length = 2048;
  int64_t logits_chunk_bytes = 0;  // 0: what suits the device (layers/head.h)
  int64_t device_bytes = 0;        // what a rank may use, margin taken off
  strategy::Topology topology;
  base::MomentFormat moments = base::MomentFormat::kWide;  // of the optimiser
  // Of the sequences of each micro-batch that is timed; empty: probe_lengths(context_length).
  std::vector<std::vector<int64_t>> lengths;
  // In which products of blocks are timed, too.
  base::GemmFormat low_precision = base::GemmFormat::kAsComputed;
  bool decodes = false;               // whether passes that say texts are timed, too
  std::string name = "probe";         // its communicators' names begin so; unique on a transport
  int64_t budget_ns = 3'000'000'000;  // aimed at; a few repetitions are taken whatever they cost
};

// The memory that a run with these options takes of a device, as cost models count it.
cost::AnalyticMemory analytic_memory(const ProbeOptions& options);

// What was measured of one kind of work and the curve through it.
struct KindFit {
  std::string kind;                   // "forward", "head", …
  std::vector<cost::Sample> samples;  // one for each micro-batch
  cost::Fit fit;
};

struct ProbeResult {
  cost::Calibration calibration;                   // the same on every rank, to the bit
  std::map<int, std::vector<KindFit>> fits_by_tp;  // this rank's
};

// Collective over all ranks; rank 0's figures count for all. Call it with the thread count of training.
// InputError when a TP degree cannot cut the shape or exceeds the world size.
ProbeResult probe(const ProbeOptions& options, comm::Transport& transport);

// What passes that say texts take of each kind on the ranks of a TP group, as the first of them measures it;
// a second or so of a small model. Collective over the group.
std::vector<cost::DecodeCost> probe_decoding(const StageProbe::Options& options,
                                             const layers::TensorParallel& parallel);

// The lengths of the micro-batches that are timed: long and short sequences at equal and at different sums.
// A probe before a run stays at or below 2,048 tokens; longer sequences follow the fit.
std::vector<std::vector<int64_t>> probe_lengths(int64_t context_length);
// Of a thorough profile: single sequences of the whole context down to a 32nd, and packs of short ones.
std::vector<std::vector<int64_t>> profile_lengths(int64_t context_length);

// Each kind's times fitted to what was measured: times[i][r] is repetition r of lengths[i]; `program` has the
// kinds. The shortest of the repetitions are fitted, so that a disturbance of one of them bends nothing; but
// first those of one micro-batch are scaled by what all kinds together usually take of it, the median
// repetition, over their shortest. Together, because where ranks are more than cores most kinds run
// undisturbed and some wait for their turn. A weight gradient is the fused backward less the input gradient,
// within half of what it takes on its own. REQUIRES: at least one repetition of each.
struct FittedTimes {
  std::vector<cost::OperationTimes> kinds;  // in the order of model::Program::kinds()
  std::vector<KindFit> fits;
};
FittedTimes fit_times(const std::vector<std::vector<int64_t>>& lengths,
                      const std::vector<std::vector<StageTimes>>& times, const model::Program& program);

}  // namespace sluice::profile

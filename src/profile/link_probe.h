// Times transfers between ranks outside tensor parallelism, and the optimizer step.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/moment_format.h"
#include "comm/transport.h"
#include "cost/cost_model.h"
#include "model/model.h"

namespace sluice::profile {

struct LinkProbeOptions {
  model::Model model;
  comm::DType dtype = comm::DType::kFloat32;
  c10::Device device = c10::kCPU;
  int tp = 1;  // TP degree of the layout that pulls parameters
  strategy::Topology topology;
  base::MomentFormat moments = base::MomentFormat::kWide;  // the timed optimizer's
  std::string name = "probe";                              // prefix of its communicators' names
  int64_t budget_ns = 500'000'000;
};

// Timings of one level of links; vectors have one value for each repetition.
struct LinkSamples {
  std::vector<double> word_ns;      // an exchange of one word
  std::vector<double> exchange_ns;  // pulls and pushes of all rounds together
  int64_t exchanges = 0;            // in each repetition
  int64_t bytes = 0;                // moved by a repetition, on the busiest rank
  std::vector<double> bulk_ns;      // one plain exchange
  int64_t bulk_bytes = 0;           // its bytes, on the busiest rank
};

// Latency is the word's time. Bandwidth comes from the time of pulls and pushes minus their exchanges'
// latency. On a loaded machine a word may take longer than they do, so the plain exchange bounds the
// bandwidth; at most half of its time counts as latency. Lower quartiles are used throughout: a wake-up that
// another process delays is no property of the link.
cost::LinkTimes fit_link(const LinkSamples& samples);

struct LinkMeasurement {
  cost::LinkTimes intra;
  cost::LinkTimes inter;  // equals `intra` if all ranks are on one node
  cost::LinkTimes host;   // copies to and from host memory, the slower direction
  int64_t update_ps_per_element = 0;
  int64_t code_ps_per_element = 0;  // as in cost::CostModel::Options
};

// Collective over all ranks; each rank gets its own measurements. Bandwidth comes from pulls and pushes of a
// model of two layers, packing and summing included, as in the step graph's exchanges. REQUIRES: tp <= world
// size.
LinkMeasurement measure_links(const LinkProbeOptions& options, comm::Transport& transport);

}  // namespace sluice::profile

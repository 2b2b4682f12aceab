// Times what moves between ranks outside tensor parallelism, and the optimiser step.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/moment_format.h"
#include "comm/transport.h"
#include "cost/cost_model.h"
#include "model/shape.h"

namespace sluice::profile {

struct LinkProbeOptions {
  model::Shape shape;
  comm::DType dtype = comm::DType::kFloat32;
  c10::Device device = c10::kCPU;
  int tp = 1;  // of the layout whose parameters are pulled
  strategy::Topology topology;
  base::MomentFormat moments = base::MomentFormat::kWide;  // of the optimiser, whose update is timed
  std::string name = "probe";                              // its communicators' names begin so
  int64_t budget_ns = 500'000'000;
};

// What was timed of one level of links, a value a repetition.
struct LinkSamples {
  std::vector<double> word_ns;      // an exchange of a word
  std::vector<double> exchange_ns;  // pulls and pushes of all rounds together
  int64_t exchanges = 0;            // in each of those
  int64_t bytes = 0;                // that they move, on the busiest rank
  std::vector<double> bulk_ns;      // one plain exchange of
  int64_t bulk_bytes = 0;           // so many bytes, on the busiest rank
};

// Latency is a word's. What pulls and pushes take beyond the latency of their exchanges moved their bytes;
// but on a loaded machine a word may take longer than they do, so no link is faster than the plain exchange
// shows it to be, half of whose time at most counts as latency. Lower quartiles throughout: a wake-up that
// another process delays is no property of the link.
cost::LinkTimes fit_link(const LinkSamples& samples);

struct LinkMeasurement {
  cost::LinkTimes intra;
  cost::LinkTimes inter;  // as intra where all ranks are on one node
  cost::LinkTimes host;   // copies to and from host memory, the slower direction
  int64_t update_ps_per_element = 0;
  int64_t code_ps_per_element = 0;  // cost::CostModel::Options'
};

// Collective over all ranks; each gets what it measured itself. Bandwidth comes from pulls and pushes of a
// model of two layers, packing and summing included, because that is what the graph's exchanges do.
// REQUIRES: tp <= world size.
LinkMeasurement measure_links(const LinkProbeOptions& options, comm::Transport& transport);

}  // namespace sluice::profile

// Times what moves between ranks outside tensor parallelism, and the optimiser step.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "comm/transport.h"
#include "cost/cost_model.h"
#include "model/shape.h"

namespace sluice::profile {

struct LinkProbeOptions {
  model::Shape shape;
  comm::DType dtype = comm::DType::kFloat32;
  c10::Device device = c10::kCPU;
  int tp = 1;  // of the layout whose parameters are pulled
  int gpus_per_node = 8;
  std::string name = "probe";  // its communicators' names begin so
  int64_t budget_ns = 500'000'000;
};

struct LinkMeasurement {
  cost::LinkTimes intra;
  cost::LinkTimes inter;  // as intra where all ranks are on one node
  cost::LinkTimes host;   // copies to and from host memory, the slower direction
  int64_t update_ps_per_element = 0;
};

// Collective over all ranks; each gets what it measured itself. Latency is that of an exchange of a word.
// Bandwidth comes from pulls and pushes of a model of two layers, packing and summing included, because that
// is what the graph's exchanges do; bytes are the busiest rank's. Lower quartiles are taken: a wake-up that
// another process delays is no property of the link. REQUIRES: tp <= world size.
LinkMeasurement measure_links(const LinkProbeOptions& options, comm::Transport& transport);

}  // namespace sluice::profile

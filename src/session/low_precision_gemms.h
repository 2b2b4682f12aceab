// Which layers of which devices compute their products in fewer bits: as few as let slower devices keep pace
// with the fastest, those first that add least noise to the gradient for the time they save (after QSync's
// allocator: quantise no more than throughput needs).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/gemm_format.h"
#include "config/run_config.h"
#include "cost/cost_model.h"
#include "plan/planner.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Of a layer (layers::GemmErrors): what rounding adds to its products over the products' own squares, in
// the mean; what part of the squares it adds to the stream of activations and to that of gradients; the
// square of its own gradient.
struct GemmNoise {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double of_activation = 1;
  double of_gradient = 1;
  double gradient_squares = 1;
};

// By layer of the model what its rounding adds to the gradient's square, over that, about: noise of a forward
// product, as far as the layer has a part in the stream, reaches the gradients of all layers through the
// loss; that of an input's gradient, likewise, its own and those of all layers before; that of a weight's
// gradient none but its own. QSync's indicator is of this kind, variance by depth.
std::vector<double> sensitivities(std::span<const GemmNoise> by_layer);

struct LowPrecisionChoice {
  std::vector<strategy::Device> devices;  // by rank, with what each computes in fewer bits
  // Of each kind of device that has any: what it takes of the work, before and behind; and what it was to
  // keep pace with.
  struct Kind {
    int first_rank = 0;
    int layers = 0;
    int64_t full_precision_ns = 0;
    int64_t low_precision_ns = 0;
    int64_t fastest_ns = 0;
  };
  std::vector<Kind> kinds;
};

struct LowPrecisionTask {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  config::LowPrecisionLayers layers = config::LowPrecisionLayers::kMinimal;
  cost::Work work;                    // a micro-batch by which devices are compared
  std::vector<GemmNoise> noise = {};  // by layer; none: alike
  int world_size = 1;
};
// The run's, by an even share of a step's tokens in sequences of the mean of these lengths. REQUIRES:
// lengths.
LowPrecisionTask low_precision_task_of(const config::RunConfig& config, std::span<const int64_t> lengths,
                                       int world_size);

// `devices`: by rank; none: alike. kMinimal counts with the cost model's times of the format: layers that it
// makes no faster stay as they are, and so do all where it has none. REQUIRES: work of some tokens.
LowPrecisionChoice choose_low_precision(const LowPrecisionTask& task, std::vector<strategy::Device> devices,
                                        const cost::CostModel& cost);

// The devices with what the configuration asks for, where nothing has been measured; `lengths` of sequences.
std::vector<strategy::Device> with_low_precision(const config::RunConfig& config,
                                                 std::span<const int64_t> lengths, int world_size,
                                                 std::vector<strategy::Device> devices,
                                                 const cost::CostModel& cost);

// The planner for the same work on these devices, by rank.
plan::Planner planner_on(const plan::Planner& planner, std::span<const strategy::Device> devices);

// "int8 products in 6 of 24 layers of devices as rank 2's, ..."; and by layer what was known of its noise.
std::string to_text(const LowPrecisionTask& task, const LowPrecisionChoice& choice);

}  // namespace sluice::session

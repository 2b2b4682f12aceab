// Chooses the layers that compute their GEMMs in fewer bits, device by device: as few as make slower devices
// as fast as the fastest. Layers with the least gradient noise per saved time come first (as QSync's
// allocator: quantise no more than throughput needs).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/gemm_format.h"
#include "config/run_config.h"
#include "cost/cost_model.h"
#include "session/decorators.h"
#include "strategy/strategy.h"

namespace sluice::session {

// The noise of one layer (layers::GemmErrors). First, for three products, the mean of rounding errors'
// squares over the product's own squares. Then the layer's part of the squares in the streams of activations
// and gradients; last the square of its own gradient.
struct GemmNoise {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double of_activation = 1;
  double of_gradient = 1;
  double gradient_squares = 1;
};

// By layer, about how much its rounding adds to the gradient's square, relative to that square. Noise of a
// forward product, times the layer's part of the stream, reaches all gradients through the loss. Noise of an
// input gradient reaches the layer's own and all earlier gradients; a weight gradient's noise stays there.
// QSync's indicator, variance by depth, is of this kind.
std::vector<double> sensitivities(std::span<const GemmNoise> by_layer);

struct LowPrecisionChoice {
  std::vector<strategy::Device> devices;  // by rank, with each one's low-precision layers
  // A kind of device with low-precision layers: its time for the work before and after the choice, and the
  // fastest device's time, which is the aim.
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
  enum class Layers : uint8_t { kMinimal, kAll };
  Layers layers = Layers::kMinimal;
  cost::Work work;                    // a micro-batch for comparing devices
  std::vector<GemmNoise> noise = {};  // by layer; empty: alike
  int world_size = 1;
};
// The run's task: an even share of a step's tokens, in sequences of the mean of these lengths. REQUIRES: at
// least one length.
LowPrecisionTask low_precision_task_of(const config::RunConfig& config, std::span<const int64_t> lengths,
                                       int world_size);

// `devices`: by rank; empty: alike. kMinimal uses the cost model's times of the format: layers that it does
// not speed up stay as they are, and so do all layers without times. REQUIRES: work of some tokens.
LowPrecisionChoice choose_low_precision(const LowPrecisionTask& task, std::vector<strategy::Device> devices,
                                        const cost::CostModel& cost);

// The devices with the configured low-precision layers, without measured noise; `lengths` of sequences.
std::vector<strategy::Device> with_low_precision(const config::RunConfig& config,
                                                 std::span<const int64_t> lengths, int world_size,
                                                 std::vector<strategy::Device> devices,
                                                 const cost::CostModel& cost);

// Candidates on these devices, by rank.
CandidateDecorator on_devices(std::span<const strategy::Device> devices);

// For messages: "int8 products in 6 layers of devices as rank 2's, ...", and the noise by layer if known.
std::string to_text(const LowPrecisionTask& task, const LowPrecisionChoice& choice);

}  // namespace sluice::session

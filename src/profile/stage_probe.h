// Times one TP rank's share of a short stage: embedding, a few blocks of each kind, head.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/gemm_format.h"
#include "comm/transport.h"
#include "generate/sampling.h"
#include "layers/tensor_parallel.h"
#include "model/shape.h"

namespace sluice::profile {

// How long one operation of a kind took with a micro-batch: the mean of those in the stage.
struct KindTimes {
  double forward_ns = 0;
  double backward_ns = 0;  // input and weight gradient at once
  double backward_input_ns = 0;
  double backward_weight_ns = 0;
};
using StageTimes = std::vector<KindTimes>;  // in the order of model::Program::kinds()

// Activation bytes a token of one operation, on one TP rank.
struct ActivationBytes {
  int64_t saved = 0;     // kept from forward to backward
  int64_t deferred = 0;  // held by a deferred weight gradient beyond those
};

// Collective over the group of `parallel`: all members make it and call the same functions. Runs the real
// layers, with random weights and the group's real collectives, whose waiting for each other is part of the
// times.
class StageProbe {
 public:
  struct Options {
    model::Shape shape;
    comm::DType dtype = comm::DType::kFloat32;
    c10::Device device = c10::kCPU;
    int64_t longest_tokens = 2048;   // of a micro-batch: length of the rotary tables
    int64_t logits_chunk_bytes = 0;  // as in ProbeOptions
    base::GemmFormat low_precision = base::GemmFormat::kAsComputed;  // of all blocks' products
    int most_blocks = 2;                                             // of each kind
    generate::Sampling sampling{.temperature = 1};
  };
  // `parallel` and its group must outlive the probe. InputError when tp cannot cut the shape.
  StageProbe(const Options& options, const layers::TensorParallel& parallel);
  ~StageProbe();

  // Forward and both forms of backward of one micro-batch of these lengths.
  // REQUIRES: 2 <= length, and all lengths together <= longest_tokens.
  StageTimes run(const std::vector<int64_t>& lengths);

  // The forward of one operation by kind, where of each of `texts` the keys of `before` tokens stay and
  // `rows` go through; the head's of drawing what comes behind each text. Nanoseconds. REQUIRES: rows >= 1,
  // before + rows <= longest_tokens.
  std::vector<double> decode(int64_t texts, int64_t before, int64_t rows) const;

  // Of the keys and values of a token in all its blocks.
  int64_t token_bytes() const;

  // By kind, from a forward and backward of `tokens` tokens in one sequence.
  std::vector<ActivationBytes> activation_bytes(int64_t tokens);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::profile

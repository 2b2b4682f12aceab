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
#include "model/model.h"

namespace sluice::profile {

// Mean duration of one operation of a kind with a micro-batch, over such operations of the stage.
struct KindTimes {
  double forward_ns = 0;
  double backward_ns = 0;  // input and weight gradient together
  double backward_input_ns = 0;
  double backward_weight_ns = 0;
};
using StageTimes = std::vector<KindTimes>;  // in the order of model::Program::kinds()

// Activation bytes for each token in one operation, on one TP rank.
struct ActivationBytes {
  int64_t saved = 0;     // kept from forward to backward
  int64_t deferred = 0;  // held additionally by a deferred weight gradient
};

// Collective over the group of `parallel`: all members construct it and call the same functions. It runs the
// real layers with random weights and the group's real collectives; members' waiting for each other is part
// of the times.
class StageProbe {
 public:
  struct Options {
    model::Model model;
    comm::DType dtype = comm::DType::kFloat32;
    c10::Device device = c10::kCPU;
    int64_t longest_tokens = 2048;   // longest micro-batch: length of the rotary tables
    int64_t logits_chunk_bytes = 0;  // as in ProbeOptions
    base::GemmFormat low_precision = base::GemmFormat::kAsComputed;  // for all blocks' GEMMs
    int most_blocks = 2;                                             // for each kind
    generate::Sampling sampling{.temperature = 1};
  };
  // `parallel` and its group must outlive the probe. InputError if tp cannot divide the model.
  StageProbe(const Options& options, const layers::TensorParallel& parallel);
  ~StageProbe();

  // Runs forward and both forms of backward of one micro-batch of these lengths.
  // REQUIRES: 2 <= length, and all lengths together <= longest_tokens.
  StageTimes run(const std::vector<int64_t>& lengths);

  // Forward times in nanoseconds of one operation by kind, in an engine step with `rows` rows of each of
  // `texts` sequences behind `before` cached tokens. The head's time includes sampling each sequence's next
  // token. REQUIRES: rows >= 1, before + rows <= longest_tokens.
  std::vector<double> decode(int64_t texts, int64_t before, int64_t rows) const;

  // Bytes of a token's keys and values in all of the probe's blocks.
  int64_t token_bytes() const;

  // By kind, measured in a forward and backward of one sequence of `tokens` tokens.
  std::vector<ActivationBytes> activation_bytes(int64_t tokens);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::profile

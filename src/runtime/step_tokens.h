// The tokens of a step that one rank needs: the pieces of its own micro-batches and nothing else.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::runtime {

// Rows of one micro-batch in piece order. Stages that need no tokens or no targets have none.
struct LanePartTokens {
  std::vector<int64_t> tokens;   // ids; stage 0
  std::vector<int64_t> targets;  // next id, or −1 where there is no loss; last stage
  // For an MTP layer, by row: the next id, or −1 at a sequence's end; and the id behind it, or −1 where it
  // has no loss; last stage.
  std::vector<int64_t> next_tokens, mtp_targets;
  std::vector<double>
      given;  // MID for each row with a target: inputs of the loss (layers/loss.h); last stage
};

// By micro-batch of this rank's lane; empty for an idle rank.
using StepTokens = std::vector<LanePartTokens>;

}  // namespace sluice::runtime

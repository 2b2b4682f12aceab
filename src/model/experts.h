// The experts of a layer, and the rule by which tokens choose among them.
#pragma once

#include <cstdint>

namespace sluice::model {

// Experts instead of a layer's MLP, gated like that MLP. A token visits the experts with the highest scores,
// a softmax over all experts, and weighs their outputs by these scores. DeepSeek-V3's rule (2024, section
// 2.1.2) uses sigmoids as scores and adds a correction to each expert's score for the choice only. It chooses
// within groups of neighbouring experts: those whose two best experts have the highest sum.
struct Experts {
  int64_t count = 0;  // 0: none
  int64_t per_token = 0;
  int64_t hidden = 0;            // inner width of one expert
  bool normalised = false;       // a token's weights are divided by their sum
  int64_t shared_hidden = 0;     // inner width of the shared expert, which every token visits; 0: none
  bool shared_gate = false;      // a factor on the shared expert's output, by token
  bool biases = false;           // for router and experts
  bool sigmoid = false;          // scores are sigmoids
  bool corrected = false;        // experts have corrections, added to scores for the choice only
  bool remembers_loads = false;  // visits of each expert in the last step are kept for balancing (tuning.h)
  int64_t groups = 1;            // groups of neighbouring experts
  int64_t groups_chosen = 1;     // groups chosen for a token
  double factor = 1.0;           // factor on a token's weights
  bool operator==(const Experts&) const = default;
};

}  // namespace sluice::model

#include "model/model_figures.h"

#include <algorithm>

#include "model/dispatch_chunk_rows.h"
#include "model/head_parts.h"
#include "model/layer.h"
#include "model/program.h"

namespace sluice::model {

int64_t least_ffn(const Model& model, int expert_lanes) {
  const Experts& experts = model.experts();
  if (experts.count == 0) return model.ffn_hidden();
  const int64_t at_hand = expert_lanes > 1 ? 0 : experts.per_token * experts.hidden;
  const int64_t visited = at_hand + experts.shared_hidden;
  return std::min(model.ffn_hidden(), visited * 3 / 4);
}

// The peak is in a backward. It has rows as they leave, arrive and are at work, and likewise their
// gradients: two rows there and one row back for each row of a wave. One expert may have all rows: its
// rows twice, its gate and up, their and SwiGLU's gradients, and its output. Each visit also has
// numbers.
int64_t dispatch_chunk_bytes(const Model& model, const Cut& cut, int64_t element_bytes) {
  if (cut.expert_lanes == 1 || model.experts().count == 0) return 0;
  const Experts& experts = model.experts();
  const int64_t width = (experts.hidden + cut.tp - 1) / cut.tp;
  const int64_t there = 3 * 2 * model.hidden(), back = 3 * model.hidden();
  const int64_t expert = 3 * model.hidden() + 6 * width;
  constexpr int64_t kVisitBytes = 64;  // numbers, places and weights, in several orders
  return dispatch_chunk_rows(cut.expert_lanes).most *
         ((there + back + expert) * element_bytes + experts.per_token * kVisitBytes);
}

// Experts one by one have the rows of one of them, at most a row for each token. All at once have rows for
// all assignments beside SwiGLU's output: the gradients of results or of rows, or those of that output,
// weighed and not.
int64_t grouped_experts_bytes(const Model& model, int64_t element_bytes) {
  constexpr int64_t kOrderBytes = 64;  // of an assignment: places and numbers in several orders
  const Experts& experts = model.experts();
  const int64_t hidden = model.hidden(), width = experts.hidden;
  const Program program(model);
  int64_t one_by_one = 0;
  for (const auto& kind : program.kinds()) {
    if (kind->work().routed > 0) one_by_one = std::max(one_by_one, kind->bytes({}, element_bytes).backward);
  }
  if (one_by_one == 0) return 0;
  const int64_t of_one = hidden + std::max(3 * width, width + hidden);
  const int64_t of_all = experts.per_token * std::max(hidden, 2 * width);
  return one_by_one + element_bytes * std::max<int64_t>(0, of_all - of_one) + experts.per_token * kOrderBytes;
}

int64_t state_elements(const Model& model, int tp) {
  const StateHeads* own = model.states();
  return own == nullptr ? 0 : (own->value_heads + tp - 1) / tp * own->key_width * own->value_width;
}

int64_t exchanged_state_elements(const Model& model, int tp, int lanes) {
  const StateHeads* own = model.states();
  if (own == nullptr) return 0;
  const HeadCounts most = most_heads({own->value_heads / tp, own->key_heads / tp}, lanes);
  return 2 * most.keys * own->key_width + most.queries * (2 * own->value_width + 2);
}

int64_t ring_elements(const Model& model, int tp) {
  if (const LatentAttention* own = model.latent()) return own->kv_rank + own->rotated;
  return 2 * ((model.kv_heads() + tp - 1) / tp) * model.head_dim();
}

int64_t products_of_keys(const Model& model) {
  const LatentAttention* own = model.latent();
  return own == nullptr ? 0 : own->kv_rank * own->heads * (own->unrotated + own->values);
}

int64_t products_with_narrow(const Model& model) {
  const LatentAttention* own = model.latent();
  return own == nullptr ? 0 : own->heads * (2 * own->kv_rank + own->rotated) / 2;
}

}  // namespace sluice::model

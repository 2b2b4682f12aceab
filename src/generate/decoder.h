// The model, forward only, on the next tokens of many sequences at once; keys and values of
// earlier tokens stay in a KV cache. Several ranks may hold one model. TP ranks cut its layers,
// pipeline stages have some layers each. Lanes have all layers (except other lanes' experts) and a
// part of the cache each. All of these ranks get the same sequences and run the same engine steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/interval.h"
#include "comm/transport.h"
#include "generate/sampling.h"
#include "inference/kv_cache_capacity.h"
#include "inference/scheduler.h"
#include "layers/kv_cache.h"
#include "layers/operation.h"
#include "layers/parameters.h"
#include "model/border_rows.h"
#include "model/parameters.h"

namespace sluice::generate {

// The ranks of one TP index that hold a model's layers one after the other.
struct Stages {
  comm::Communicator* group = nullptr;  // borrowed; null: one stage
  std::vector<int> members;             // ranks in `group`, by stage
  int own = 0;
  int count() const { return std::max<int>(1, static_cast<int>(members.size())); }
  bool last() const { return own + 1 == count(); }
};

// The ranks of one TP index and stage that share one KV cache.
struct Lanes {
  std::vector<int> members;  // ranks in the communicator of context.lanes, by lane; empty: one lane
  int own = 0;
  int count() const { return std::max<int>(1, static_cast<int>(members.size())); }
};

// A rank's part of a model: a stage of it, or all.
struct ModelShard {
  const model::ParameterTable& table;
  layers::LayerContext context;  // with its TP group; its rotary tables cover the longest sequence
  layers::FlatShards weights;
  at::TensorOptions like;  // device and type of computing
  Stages stages = {};
  Lanes lanes = {};
  // The number of tuned models whose adapters are loaded side by side. Each adapter has as many
  // columns of narrow rows (checkpoint/peft_folder.h). 0: rows take all adapters that there are.
  int64_t adapters = 0;

  inference::ModelSharding sharding() const {
    return {.program = table.program,
            .tp = context.parallel.tp,
            .stages = stages.count(),
            .element_bytes = static_cast<int64_t>(like.dtype().itemsize()),
            .lanes = lanes.count()};
  }
  // The operations of a stage.
  base::Interval run(int stage) const {
    return table.program.of_stage(context.parallel.tp, stages.count(), stage);
  }
};

// The model's score of a prompt token, among all tokens possible there.
struct PromptLogprob {
  double log_probability = 0;
  std::vector<Alternative> alternatives;  // the likeliest tokens, the likeliest first
};

// One engine step's forward on its way through the stages.
struct ForwardPass {
  // Empty: a stage without an engine step in this micro-step.
  ForwardPass() = default;
  // REQUIRES: `pieces` are the latest that `scheduler` returned.
  ForwardPass(std::vector<inference::ScheduledTokens> pieces, const inference::Scheduler& scheduler);

  std::vector<inference::ScheduledTokens> scheduled;
  std::vector<int64_t> ids;      // for all rows
  std::vector<int64_t> targets;  // for scored rows, piece by piece
  int64_t alternatives = 0;      // to report for each scored row
  layers::Flow flow;             // on the stage that computes the pass

  // Results of the last stage. Logits after the last token of each piece that
  // needs sampling, in their order: [pieces, vocabulary], on the model's device.
  at::Tensor logits_PV;
  std::vector<PromptLogprob> prompt_logprobs;  // for all scored rows, piece by piece
};

class Decoder {
 public:
  // Allocates a cache of `pages` KV blocks, over all lanes, with room for
  // `most_texts` running sequences. The model must outlive the decoder.
  Decoder(ModelShard model, int64_t pages, int64_t most_texts);

  // Runs the pass through this rank's stage. Collective over the stage's ranks. `between` is
  // called between two layers; another pass, of other sequences, may go through the model there.
  void forward(ForwardPass& pass, const std::function<void()>& between = {}) const;
  // The end of a micro-step, collective over the model's ranks. Passes in `by_stage` go on
  // to the next stage. The last stage sends `figures` to all ranks, which know their number.
  void send_to_next_stage(std::deque<ForwardPass>& by_stage, std::span<double> figures) const;
  model::BorderRows border_at(int64_t position) const;
  // Puts rows in their places that have arrived from the stage before.
  void take(std::vector<at::Tensor> arrived, layers::Flow& flow) const;
  bool is_last_stage() const { return model_.stages.last(); }
  const ModelShard& model() const { return model_; }

  // Recurrent layers lose the state of a prompt's end before another sample needs it.
  bool shares_prompts() const { return !model_.context.model.has_states(); }

  // Bytes of a KV block on this rank.
  static int64_t kv_block_bytes(const ModelShard& model);
  // The number of KV blocks, over all lanes, that fit `bytes` of each rank beside
  // the states of `most_texts` sequences. The same on all ranks of the model.
  static int64_t kv_blocks_in(const ModelShard& model, double bytes, int64_t most_texts);

 private:
  std::vector<PromptLogprob> scores_of(const at::Tensor& x_RH, const ForwardPass& pass) const;

  layers::RowLayout layout_of(std::span<const inference::ScheduledTokens> pieces) const;
  layers::DispatchedRows dispatched_rows(const layers::CacheOfLanes& lanes) const;
  // The pass's rows on this rank: all, or its lane's.
  base::Interval own_rows(const ForwardPass& pass) const;
  layers::AdapterMask adapter_rows_of(const ForwardPass& pass) const;
  // The layers' outputs at `rows` of the pass.
  at::Tensor rows_of(const layers::RowLayout& layout, const at::Tensor& x_TH,
                     const std::vector<int64_t>& rows) const;

  std::unique_ptr<layers::AdapterMask> adapter_rows_;  // for the current pass; null: not needed
  ModelShard model_;
  layers::KvCache cache_;
  std::vector<std::unique_ptr<layers::Operation>> operations_;  // the stage's operations without the head
  layers::HeadParameters head_;
};

}  // namespace sluice::generate

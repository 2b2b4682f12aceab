// The model, forward only, on the next tokens of many texts at once, whose earlier tokens' keys and values
// stay. Several ranks may have it between them: TP ranks cut its layers, stages of a pipeline have some of
// them each, lanes have all of it, or all but the experts of other lanes, and some of the cache each. All of these have the same texts and go through
// the same passes.
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

// The ranks of one TP index that have a model's layers one behind the other.
struct Stages {
  comm::Communicator* group = nullptr;  // borrowed; null: one stage
  std::vector<int> members;             // of it, by stage
  int own = 0;
  int count() const { return std::max<int>(1, static_cast<int>(members.size())); }
  bool last() const { return own + 1 == count(); }
};

// The ranks of one TP index and stage that have the cache between them.
struct Lanes {
  std::vector<int> members;  // of the communicator of context.lanes, by lane; none: one lane
  int own = 0;
  int count() const { return std::max<int>(1, static_cast<int>(members.size())); }
};

// What a rank has of a model, in a stage or whole.
struct ModelShard {
  const model::ParameterTable& table;
  layers::LayerContext context;  // with its TP group; its rotary tables reach as far as any text
  layers::FlatShards weights;
  at::TensorOptions like;  // device and type of what is computed
  Stages stages = {};
  Lanes lanes = {};
  // Adapters of so many tuned models that it has side by side, each in as many columns of narrow rows as all
  // others (checkpoint/peft_folder.h). 0: rows take all adapters that there are.
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

// What the model makes of a token that was given, of all that could stand there.
struct PromptLogprob {
  double log_probability = 0;
  std::vector<Alternative> alternatives;  // the likeliest tokens, the likeliest first
};

// What goes through the model at once, on its way through the stages.
struct ForwardPass {
  // Nothing: a turn with nothing to do.
  ForwardPass() = default;
  // REQUIRES: pieces of `scheduler`, as it has just given them.
  ForwardPass(std::vector<inference::ScheduledTokens> pieces, const inference::Scheduler& scheduler);

  std::vector<inference::ScheduledTokens> scheduled;
  std::vector<int64_t> ids;      // of all rows
  std::vector<int64_t> targets;  // of scored rows, piece by piece
  int64_t alternatives = 0;      // that are told of each of these rows
  layers::Flow flow;             // on the stage that has it

  // What the last stage makes of it. Logits behind the last token of each piece that says something, in their
  // order: [pieces, vocabulary], double, in host memory.
  at::Tensor logits_PV;
  std::vector<PromptLogprob> prompt_logprobs;  // of all scored rows, piece by piece
};

class Decoder {
 public:
  // With a cache of so many pages, over all lanes, and room for so many texts at once. The model must outlive
  // it.
  Decoder(ModelShard model, int64_t pages, int64_t most_texts);

  // Runs the pass through this rank's stage. Collective over its ranks. `between` is called between two
  // layers: another pass, of other texts, may go through the model there.
  void forward(ForwardPass& pass, const std::function<void()>& between = {}) const;
  // A turn's end, collective over the ranks that have the model: passes, by the stage that has them, go on to
  // the stage behind it, and figures from the last stage to all, which know how many there are.
  void send_to_next_stage(std::deque<ForwardPass>& by_stage, std::span<double> figures) const;
  model::BorderRows border_at(int64_t position) const;
  void unpack(layers::Flow& flow) const;
  bool is_last_stage() const { return model_.stages.last(); }
  const ModelShard& model() const { return model_; }

  // Of recurrent layers states of prompts' ends are not there any more when another sample wants them.
  bool shares_prompts() const { return model_.context.shape.recurrent.key_heads == 0; }

  // What a page takes of this rank.
  static int64_t kv_block_bytes(const ModelShard& model);
  // How many pages so many bytes of each rank hold beside what each of so many texts takes, over all lanes:
  // the same on all ranks of the model.
  static int64_t kv_blocks_in(const ModelShard& model, double bytes, int64_t most_texts);

 private:
  std::vector<PromptLogprob> scores_of(const at::Tensor& x_RH, const ForwardPass& pass) const;

  layers::RowLayout layout_of(std::span<const inference::ScheduledTokens> pieces) const;
  layers::DispatchedRows dispatched_rows(const layers::CacheOfLanes& lanes) const;
  // The rows of a pass that this rank has: all, or those of its lane.
  base::Interval own_rows(const ForwardPass& pass) const;
  layers::AdapterMask adapter_rows_of(const ForwardPass& pass) const;
  // Of rows of the pass what the layers put out.
  at::Tensor rows_of(const layers::RowLayout& layout, const at::Tensor& x_TH,
                     const std::vector<int64_t>& rows) const;

  std::unique_ptr<layers::AdapterMask> adapter_rows_;  // of the pass that goes through; null: not asked for
  ModelShard model_;
  layers::KvCache cache_;
  std::vector<std::unique_ptr<layers::Operation>> operations_;  // of its stage, but the head
  layers::HeadParameters head_;
};

}  // namespace sluice::generate

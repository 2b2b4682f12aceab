#include "runtime/test_features.h"

#include <utility>

#include "model/outline.h"
#include "model/test_tuning.h"

namespace sluice::runtime {

RunOptions short_run(int world_size, std::vector<std::string> strategies) {
  RunOptions options;
  options.world_size = world_size;
  options.gpus_per_node = 2;
  options.strategies = std::move(strategies);
  options.steps = 6;
  return options;
}

namespace {

const Feature kFeatures[] = {
    {"SharedParameters",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4>", "<1,1,4,2>", "<1,2,2,2>"});
       options.plan = ringed_plan;
       return options;
     }},
    {"ExchangedHeads",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,1,2>"});
       options.plan = ringed_plan;
       options.exchanges = {{.head_lanes = 0}};
       return options;
     }},
    {"NestedExchanges",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<1,1,4,4>"});
       options.plan = ringed_plan;
       options.exchanges = {{.head_lanes = 2}};
       return options;
     }},
    {"WindowsAndCaps",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,2,1>"});
       options.plan = ringed_plan;
       options.model.window = 7;
       options.model.block_types = {{.windowed = true}, {}, {.windowed = true}, {}};
       options.model.score_cap = 0.01;
       options.model.logit_cap = 0.2;
       return options;
     }},
    {"Adapters",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "<1,1,4,2>"});
       model::adapt(options.model, {.rank = 2, .alpha = 3, .targets = {"q_proj", "down_proj"}});
       return options;
     }},
    {"DecomposedAdapters",
     [] {
       RunOptions options = short_run(4, {"<2,2,1>", "<1,1,4,2>"});
       model::adapt(options.model,
                    {.rank = 2, .alpha = 3, .targets = {"q_proj", "o_proj", "up_proj"}, .dora = true});
       return options;
     }},
    {"FrozenParts",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>"});
       model::freeze(options.model, {"model.embed_tokens", "model.layers.0.*", "*.mlp.down_proj*"});
       return options;
     }},
    {"MaskedHead",
     [] {
       RunOptions options = short_run(4, {"<2,2,1>", "<1,1,4>"});
       options.loss_one_in = 5;
       return options;
     }},
    {"Experts",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<1,1,4,4>"});
       options.model.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true};
       return options;
     }},
    {"ExpertsOfASharedOneWithBiases",
     [] {
       RunOptions options = short_run(4, {"<2,1,1> + 2x<1,1,1>", "<1,1,4>"});
       options.plan = ringed_plan;
       options.model.experts = {
           .count = 6, .per_token = 2, .hidden = 9, .shared_hidden = 7, .shared_gate = true, .biases = true};
       return options;
     }},
    {"DividedExperts",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4,4>", "<1,1,4,4,2>"});
       options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
       return options;
     }},
    {"GatedDeltaLayersBesideAttention",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,2,1>", "<1,1,4,4>"});
       options.plan = packed_plan;
       options.model.recurrent = {
           .key_heads = 4, .value_heads = 12, .key_width = 4, .value_width = 3, .convolution = 6};
       options.model.block_types = {{.recurrent = true}, {}, {.recurrent = true}, {.recurrent = true}};
       return options;
     }},
    {"LatentAttention",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,2,1>", "<1,1,4,4>"});
       options.plan = ringed_plan;
       options.model.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
       options.model.kv_heads = options.model.heads;
       options.model.head_dim = 8;
       options.model.rotated = 2;
       return options;
     }},
    {"PullInDifferences",
     [] {
       RunOptions options = short_run(4, {"4x<1,1,1>", "4x<1,1,1>", "<2,1,1> + <1,2,1>"});
       options.model = coded_outline();
       options.codecs.pull = strategy::PullCodec::kInt8Difference;
       return options;
     },
     kCodedTolerance},
    {"PushInEightBits",
     [] {
       RunOptions options = short_run(4, {"4x<1,1,1>", "<2,1,1> + <1,2,1>"});
       options.dtype = comm::DType::kFloat32;
       options.codecs.push = {strategy::Codec::kInt8, strategy::Codec::kInt8};
       return options;
     },
     kCodedTolerance},
    {"MomentsOfEightBits",
     [] {
       RunOptions options = short_run(4, {"<2,2,1>", "4x<1,1,1>"});
       options.model = coded_outline();
       options.moments = base::MomentFormat::k8Bit;
       return options;
     },
     kCodedTolerance},
};

}  // namespace

std::span<const Feature> features() { return kFeatures; }

}  // namespace sluice::runtime

// A whole small model through these layers, on 1 to 4 TP ranks with real threads, against an obvious twin:
// one sequence at a time, full attention matrices, torch's autograd, no cuts.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/test_fake.h"
#include "layers/head.h"
#include "layers/make_operation.h"
#include "layers/operation.h"
#include "layers/test_adapted_variations.h"
#include "layers/test_recurrent_variations.h"
#include "layers/test_twin.h"
#include "layers/test_variations.h"
#include "model/layer_of.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "model/test_tuning.h"
#include "ops/device.h"

#ifdef SLUICE_CUDA
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace sluice::layers {
namespace {

// Ranks are threads here: several teams of compute threads on few cores only wait for each other.
class OneComputeThread : public testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};
const testing::Environment* const kOneComputeThread =
    testing::AddGlobalTestEnvironment(new OneComputeThread);  // owned by GoogleTest

enum class Weights { kFused, kDeferred };
at::Tensor cut(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t) {
  std::vector<at::Tensor> parts;
  const base::IntervalSet set = model::shard_of(bucket, {tp, t});
  for (const base::Interval& part : set.intervals()) {
    parts.push_back(flat.narrow(0, part.begin, part.size()));
  }
  return at::cat(parts);
}

void add_back(const model::Bucket& bucket, const at::Tensor& shard, int tp, int t, const at::Tensor& whole) {
  int64_t offset = 0;
  const base::IntervalSet set = model::shard_of(bucket, {tp, t});
  for (const base::Interval& part : set.intervals()) {
    whole.narrow(0, part.begin, part.size()).add_(shard.narrow(0, offset, part.size()));
    offset += part.size();
  }
}

struct Rank {
  double loss_sum = 0.0;
  double evaluated_loss_sum = 0.0;
  std::vector<at::Tensor> accumulators;
  double mtp_loss_sum = 0.0;
};

// While it lives, operators that wait for a GPU throw.
class NoWaiting {
 public:
#ifdef SLUICE_CUDA
  NoWaiting() { set(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoWaiting() { set(c10::cuda::SyncDebugMode::L_DISABLED); }

 private:
  static void set(c10::cuda::SyncDebugMode mode) { c10::cuda::warning_state().set_sync_debug_mode(mode); }
#endif
};

// GPUs multiply groups without reading their sizes in bfloat16 alone (ops/grouped_product.h).
std::optional<NoWaiting> without_waiting(const Case& c) {
  if (c.model.experts.count > 0 && c.dtype != at::kBFloat16) return std::nullopt;
  return std::optional<NoWaiting>(std::in_place);
}

// An operation keeps the bytes that its kind counts for the fullest rank, or fewer.
void expect_bytes(int64_t actual, int64_t counted, int64_t rows, int tp) {
  if (tp == 1) {
    EXPECT_EQ(actual, counted * rows);
  }
  EXPECT_LE(actual, counted * rows);
}

model::TokenBytes bytes_at(const Case& c, const model::Program& program, size_t position, int tp) {
  return program.kind_at(static_cast<int64_t>(position)).bytes({tp}, c10::elementSize(c.dtype));
}

void expect_deferred_bytes(const Case& c, int64_t actual, const model::TokenBytes& counted, int64_t rows,
                           int tp) {
  // A convolution's gradients do not depend on the number of rows.
  const int64_t convolutions = c.model.recurrent.qkv_width() * c.model.recurrent.convolution * 8;
  const int64_t most = (counted.saved + counted.deferred) * rows;
  EXPECT_LE(actual, most + convolutions);
  if (tp == 1 && convolutions == 0 && counted.deferred > 0 && !model::is_tuned(c.model)) {
    EXPECT_EQ(actual, most);
  }
}

// All operations but the head forward; what the case keeps of them.
std::vector<StatePtr> forward_layers(const Case& c, const std::vector<std::unique_ptr<Operation>>& operations,
                                     const model::Program& program, int tp, Flow& flow) {
  std::vector<StatePtr> saved(operations.size());
  const int64_t rows = flow.layout.rows;
  for (size_t i = 0; i + 1 < operations.size(); ++i) {
    saved[i] = operations[i]->forward(flow, Purpose::kTrain);
    if (saved[i] == nullptr) continue;  // the embedding
    const model::TokenBytes counted = bytes_at(c, program, i, tp);
    expect_bytes(saved[i]->bytes(), counted.saved, rows, tp);
    EXPECT_EQ(saved[i]->recomputed_bytes(), 0);
    for (const SavedRows& row : saved[i]->rows()) {
      const bool log_sum_exp = row.dimension == 1;
      if (log_sum_exp && row.tensor.defined()) row.tensor.add_(c.lse_error);
    }
    if (c.activations == Activations::kKeep) continue;
    operations[i]->drop_recomputable(*saved[i]);
    expect_bytes(saved[i]->bytes(), counted.recompute_input, rows, tp);
    expect_bytes(saved[i]->recomputed_bytes(), counted.recomputed, rows, tp);
  }
  return saved;
}

MtpRows mtp_rows(const Case& c, const Data& data, const TensorParallel& parallel, const RowLayout& layout) {
  if (!c.model.mtp) return {};
  std::vector<int64_t> behind = row_behind(c.lengths, data.targets);
  behind.resize(static_cast<size_t>(layout.rows), -1);
  return {row_values(row_behind(c.lengths, data.ids), layout, c.device), targets(behind, parallel, c.device)};
}

// One rank's micro-batch: all layers forward, head, all layers backward.
Rank run_rank(const Case& c, const Data& data, const TensorParallel& parallel, Weights weights) {
  const model::ParameterTable table = model::parameter_table(c.model);
  const int tp = parallel.tp, t = parallel.t;
  std::vector<at::Tensor> flats, sums;
  const at::ScalarType wide = c.dtype == at::kDouble ? at::kDouble : at::kFloat;
  for (size_t i = 0; i < table.buckets.size(); ++i) {
    flats.push_back(cut(table.buckets[i], data.flats[i], tp, t).to(c.device));
    sums.push_back(at::zeros_like(flats.back(), at::dtype(wide)));
  }
  LayerContext context = layer_context(c.model, parallel, 64, at::dtype(c.dtype).device(c.device));
  if (c.logits_chunk_bytes > 0) context.logits_chunk_bytes = c.logits_chunk_bytes;
  context.groups_experts |= c.groups_experts;
  context.loss = with_z_loss(c.z_loss);
  context.moe_aux_loss_coeff = c.moe_aux_loss_coeff;
  context.mtp_loss_weight = c.mtp_loss_weight;
  std::vector<PieceSpan> pieces;
  for (const int64_t length : c.lengths) pieces.push_back({length});
  const RowLayout layout = row_layout(pieces, tp, c.device, reach_of(c.model));
  const at::Tensor ids = row_values(data.ids, layout, c.device);
  std::vector<int64_t> row_targets = data.targets;
  row_targets.resize(static_cast<size_t>(layout.rows), -1);
  const Targets chosen = targets(row_targets, parallel, c.device);
  std::optional<NoWaiting> no_waiting = without_waiting(c);

  const auto of = [](const std::vector<at::Tensor>& from) {
    return [&from](int bucket) { return from[static_cast<size_t>(bucket)]; };
  };
  std::vector<std::unique_ptr<Operation>> operations;
  for (int64_t position = 0; position < table.program.size(); ++position) {
    operations.push_back(make_operation(context, table, position, of(flats), of(sums)));
  }
  Flow flow;
  flow.layout = layout;
  flow.id_T = ids;
  flow.targets = chosen;
  flow.mtp = mtp_rows(c, data, parallel, layout);
  std::vector<StatePtr> saved = forward_layers(c, operations, table.program, tp, flow);
  std::vector<StatePtr> deferred(operations.size());
  const HeadParameters head =
      head_parameters({table, table.program.head(), of(flats), OperationShards::Of::kWeights, {tp, t}});
  const at::Tensor evaluated = head_losses(context, head, flow.activation_SH, chosen);
  operations.back()->forward(flow, Purpose::kTrain);
  for (size_t i = operations.size() - 1; i-- > 0;) {
    if (weights == Weights::kFused) {
      operations[i]->backward(flow, std::move(saved[i]));
    } else {
      deferred[i] = operations[i]->backward_input(flow, std::move(saved[i]));
    }
  }
  for (size_t i = 1; weights == Weights::kDeferred && i + 1 < operations.size(); ++i) {
    expect_deferred_bytes(c, deferred[i]->bytes(), bytes_at(c, table.program, i, tp), layout.rows, tp);
    operations[i]->backward_weight(std::move(deferred[i]));
  }
  no_waiting.reset();
  for (at::Tensor& sum : sums) sum = sum.cpu();
  const double mtp_loss = c.model.mtp ? flow.sums[1].item<double>() : 0;
  return {flow.sums[0].item<double>(), evaluated.sum().item<double>(), sums, mtp_loss};
}

std::vector<Rank> run_ranks(const Case& c, const Data& data, int tp, Weights weights) {
  if (tp == 1) return {run_rank(c, data, {}, weights)};
  comm::FakeWorld world(tp);
  std::vector<int> members;
  for (int t = 0; t < tp; ++t) members.push_back(t);
  std::vector<Rank> ranks(static_cast<size_t>(tp));
  std::vector<std::thread> threads;
  for (int t = 0; t < tp; ++t) {
    threads.emplace_back([&, t] {
      const auto transport = world.transport(t);
      const auto group = transport->communicator("tp", members);
      ranks[static_cast<size_t>(t)] = run_rank(c, data, {group.get(), tp, t}, weights);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

Outcome run_layers(const Case& c, const Data& data, int tp, Weights weights = Weights::kFused) {
  const std::vector<Rank> ranks = run_ranks(c, data, tp, weights);
  const model::ParameterTable table = model::parameter_table(c.model);
  Outcome outcome{ranks.front().loss_sum, {}, ranks.front().mtp_loss_sum};
  for (size_t i = 0; i < table.buckets.size(); ++i) {
    outcome.gradients.push_back(at::zeros({table.buckets[i].size}, ranks.front().accumulators[i].options()));
    for (int t = 0; t < tp; ++t) {
      const Rank& rank = ranks[static_cast<size_t>(t)];
      add_back(table.buckets[i], rank.accumulators[i], tp, t, outcome.gradients.back());
      EXPECT_EQ(rank.loss_sum, outcome.loss_sum);
      EXPECT_DOUBLE_EQ(rank.evaluated_loss_sum, outcome.loss_sum);
    }
  }
  return outcome;
}

void expect_equal(const Case& c, const Outcome& actual, const Outcome& expected, double tolerance) {
  EXPECT_NEAR(actual.loss_sum, expected.loss_sum, tolerance * std::abs(expected.loss_sum));
  EXPECT_NEAR(actual.mtp_loss_sum, expected.mtp_loss_sum, tolerance * std::abs(expected.mtp_loss_sum));
  const model::ParameterTable table = model::parameter_table(c.model);
  for (size_t i = 0; i < table.buckets.size(); ++i) {
    for (const model::Parameter& p : table.buckets[i].parameters) {
      const at::Tensor a = actual.gradients[i].narrow(0, p.offset, p.size()).to(at::kDouble);
      const at::Tensor e = expected.gradients[i].narrow(0, p.offset, p.size()).to(at::kDouble);
      if (!p.trained) {
        EXPECT_EQ(a.abs().max().item<double>(), 0) << p.name;
        continue;
      }
      EXPECT_LE((a - e).abs().max().item<double>(), tolerance * e.abs().max().item<double>()) << p.name;
    }
  }
}

// ---- Tests ----

TEST(Model, OneRankEqualsAutogradOfUnpackedSequences) {
  for (const bool tied : {false, true}) {
    const Case c{small_shape(12, 4, tied), {5, 1, 9, 17}};
    const Data data = random_data(c);
    expect_equal(c, run_layers(c, data, 1), run_twin(c, data), 1e-12);
  }
}

// Also where logits have a cap, and where each chunk has few rows.
TEST(Model, ZLossEqualsAutogradUnderTensorParallelism) {
  for (const double cap : {0.0, 3.0}) {
    Case c{small_shape(12, 4, false), {5, 1, 9, 17}};
    c.z_loss = 0.3;
    c.logits_chunk_bytes = 1;
    c.model.logit_cap = cap;
    const Data data = random_data(c);
    const Outcome expected = run_twin(c, data);
    for (const int tp : {1, 2, 4}) expect_equal(c, run_layers(c, data, tp), expected, 1e-12);
  }
}

struct TpCase {
  int tp;
  int64_t kv_heads;
  std::vector<int64_t> lengths;
};

class TensorParallelModel : public testing::TestWithParam<TpCase> {};

TEST_P(TensorParallelModel, EqualsAutograd) {
  for (const bool tied : {false, true}) {
    const Case c{small_shape(12, GetParam().kv_heads, tied), GetParam().lengths};
    const Data data = random_data(c);
    expect_equal(c, run_layers(c, data, GetParam().tp), run_twin(c, data), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TensorParallelModel,
    testing::Values(TpCase{2, 12, {6, 2, 8}},     // rows divide, every head its own keys
                    TpCase{2, 4, {5, 1, 9}},      // an inert row
                    TpCase{3, 3, {7, 4, 11}},     // uneven FFN and vocabulary cuts
                    TpCase{3, 1, {10, 3}},        // one key head on three ranks
                    TpCase{4, 2, {5, 1, 9, 18}},  // two key heads on four ranks, three inert rows
                    TpCase{4, 4, {2}},            // two ranks have inert rows only
                    TpCase{4, 12, {1, 40}}),      // a sequence of one token
    [](const auto& info) {
      return "Tp" + std::to_string(info.param.tp) + "KvHeads" + std::to_string(info.param.kv_heads) +
             "Sequences" + std::to_string(info.param.lengths.size());
    });

using model::Outline;

// Layer variations of model families, one by one and together, by TP degree; also TP beyond the key heads.
const std::vector<Variation>& variations() {
  static const std::vector<Variation> all = {
      {"Bias", [](Outline& s) { s.qkv_bias = true; }},
      {"NormedHeads", [](Outline& s) { s.qk_norm = model::QkNorm::kEachHead; }},
      {"HeadsNormedTogether", [](Outline& s) { s.qk_norm = model::QkNorm::kAllHeads; }},
      {"NormsBehind", [](Outline& s) { s.norm_place = model::NormPlace::kBehind; }},
      {"Factors",
       [](Outline& s) {
         s.embedding_scale = 3.0;
         s.residual_scale = 0.4;
         s.attention_scale = 0.3;
         s.logit_divisor = 2.5;
       }},
      {"UnrotatedLayer",
       [](Outline& s) {
         s.block_types = {{}, {.rotates = false}};
       }},
      {"Window", [](Outline& s) { s.window = 4; }},
      {"WindowOfOneLayerWithItsOwnRope",
       [](Outline& s) {
         s.window = 3;
         s.window_rope = model::Rope{.theta = 100.0};
         s.block_types = {{.windowed = true}, {}};
       }},
      {"CappedScoresAndLogits",
       [](Outline& s) {
         s.score_cap = 1.5;
         s.logit_cap = 2.0;
       }},
      {"SinksAndBiases",
       [](Outline& s) {
         s.qkv_bias = s.out_bias = true;
         s.sinks = true;
       }},
      {"NormsAroundWithAnOffset",
       [](Outline& s) {
         s.norm_place = model::NormPlace::kAround;
         s.norm_offset = 1.0;
       }},
      {"GatedHeadsOfWhichSomeDimensionsRotate",
       [](Outline& s) {
         s.gated = true;
         s.rotated = 2;
         s.qk_norm = model::QkNorm::kEachHead;
         s.qkv_bias = true;
       }},
      {"Gelu", [](Outline& s) { s.activation = model::Activation::kGeluTanh; }},
      {"All",
       [](Outline& s) {
         for (const Variation& other : variations()) {
           if (other.name == "All") break;
           other.apply(s);
         }
       }},
  };
  return all;
}

// Experts and latent attention, alone and beside other parts.
const std::vector<Variation>& expert_variations() {
  static const std::vector<Variation> all = {
      {"Experts", [](Outline& s) { s.experts = {.count = 5, .per_token = 2, .hidden = 13}; }},
      {"ExpertsWithNormalisedWeights",
       [](Outline& s) {
         s.experts = {.count = 7, .per_token = 3, .hidden = 10, .normalised = true};
         s.residual_scale = 0.4;
       }},
      {"ExpertsBesideAnMlpAndASharedOne",
       [](Outline& s) {
         s.experts = {.count = 4, .per_token = 2, .hidden = 6, .shared_hidden = 9, .shared_gate = true};
         s.block_types = {{}, {.experts = true}};
       }},
      {"ExpertsAndOneSharedWithoutAFactor",
       [](Outline& s) {
         s.experts = {.count = 3, .per_token = 2, .hidden = 8, .normalised = true, .shared_hidden = 11};
         s.activation = model::Activation::kGeluTanh;
       }},
      {"ExpertsThatAllVisit", [](Outline& s) { s.experts = {.count = 3, .per_token = 3, .hidden = 8}; }},
      {"ExpertsWithBiasesAndClampedGates",
       [](Outline& s) {
         s.experts = {.count = 5, .per_token = 2, .hidden = 13, .normalised = true, .biases = true};
         s.activation = model::Activation::kClampedSilu;
         s.gate_slope = 1.702;
         s.gate_limit = 0.05;
         s.sinks = s.qkv_bias = s.out_bias = true;
         s.residual_scale = 0.7;
       }},
      // The last variation has more experts than rows, so that most experts get none.
      {"LatentAttention",
       [](Outline& s) {
         s.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
         s.kv_heads = s.heads;
         s.head_dim = 8;
         s.rotated = 2;
       }},
      {"LatentAttentionOfWideValuesWithExperts",
       [](Outline& s) {
         s.latent = {.q_rank = 9, .kv_rank = 5, .unrotated = 4, .rotated = 4, .values = 8};
         s.kv_heads = s.heads;
         s.head_dim = 8;
         s.rotated = 4;
         s.attention_scale = 0.5;
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.block_types = {{}, {.experts = true}};
       }},
      {"ExpertsOfGroupsByCorrectedSigmoids",
       [](Outline& s) {
         s.experts = {.count = 8, .per_token = 3, .hidden = 10, .normalised = true, .shared_hidden = 9};
         s.experts.sigmoid = s.experts.corrected = true;
         s.experts.groups = 4;
         s.experts.groups_chosen = 2;
         s.experts.factor = 2.5;
       }},
      {"ManyExperts", [](Outline& s) { s.experts = {.count = 90, .per_token = 1, .hidden = 4}; }}};
  return all;
}

// Models that train some of their parameters only.
const std::vector<Variation>& tuned_variations() {
  static const std::vector<Variation> all{
      {"FrozenExperts",
       [](Outline& s) {
         s.experts = {.count = 4, .per_token = 2, .hidden = 6, .shared_hidden = 9, .shared_gate = true};
         model::freeze(s, {"model.layers.0.mlp.experts", "model.layers.1.mlp.gate", "*.shared_expert_gate",
                           "model.layers.1.mlp.shared_expert.*"});
       }},
      {"FrozenParameters",
       [](Outline& s) {
         s.qkv_bias = s.out_bias = true;
         model::freeze(s, {"model.layers.0.*_proj.*", "model.layers.*norm.weight", "model.norm"});
       }},
      {"FrozenEnds",
       [](Outline& s) {
         model::freeze(s, {"model.embed*", "*.down_proj*"});
         if (!s.tie_embeddings) model::freeze(s, {"lm_head"});
       }},
      {"FrozenNormsOfHeadsAndSinks",
       [](Outline& s) {
         s.sinks = true;
         s.qk_norm = model::QkNorm::kAllHeads;
         model::freeze(s, {"*_norm.weight", "*.sinks"});
       }},
      {"FrozenPartsOfRecurrentLayers",
       [](Outline& s) {
         s.recurrent = {
             .key_heads = 12, .value_heads = 12, .key_width = 3, .value_width = 2, .convolution = 4};
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
         model::freeze(s, {"model.layers.0.*.conv1d.*", "*.A_log", "model.layers.1.*.o_norm.*",
                           "model.layers.1.linear_attn.q_proj.*", "model.layers.1.linear_attn.k_proj.*",
                           "model.layers.1.linear_attn.v_proj.*", "model.layers.0.linear_attn.o_proj.*"});
       }},
  };
  return all;
}

class Families : public testing::TestWithParam<Variation> {
 protected:
  static Case varied(int64_t kv_heads) {
    Case c{small_shape(12, kv_heads, true), {5, 1, 9, 17}};
    GetParam().apply(c.model);
    return c;
  }
};

// On GPU 0 without waiting for it, against autograd in FP64 on the CPU; weights fused and deferred,
// activations kept and made again.
void expect_gpu_equals_autograd(Case c, double tolerance) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  ops::prepare_device(gpu);
  const Data data = random_data(c);
  const Outcome expected = run_twin(c, data);
  c.device = gpu;
  for (const Activations activations : {Activations::kKeep, Activations::kRecompute}) {
    c.activations = activations;
    for (const Weights weights : {Weights::kFused, Weights::kDeferred}) {
      expect_equal(c, run_layers(c, data, 1, weights), expected, tolerance);
    }
  }
}

// Every kind of layer, on one rank.
TEST_P(Families, OnAGpuEqualAutograd) { expect_gpu_equals_autograd(varied(4), 1e-11); }

void expect_equals_autograd(const Case& c, int tp) {
  const Data data = random_data(c);
  expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 1e-11);
}

void expect_deferred_and_recomputed_are_exact(Case c) {
  const Data data = random_data(c);
  const Outcome fused = run_layers(c, data, 2);
  expect_equal(c, run_layers(c, data, 2, Weights::kDeferred), fused, 0.0);
  c.activations = Activations::kRecompute;
  expect_equal(c, run_layers(c, data, 2), fused, 0.0);
}

TEST_P(Families, EqualAutograd) {
  for (const auto& [tp, kv_heads] : {std::pair(1, 4), std::pair(2, 4), std::pair(4, 2), std::pair(3, 1)})
    expect_equals_autograd(varied(kv_heads), tp);
}

TEST_P(Families, DeferredAndRecomputedGradientsAreTheSameExactly) {
  expect_deferred_and_recomputed_are_exact(varied(4));
}

// All experts' products at once, as devices compute them; the products themselves are those of a CPU.
class GroupedFamilies : public Families {
 protected:
  static Case grouped(int64_t kv_heads) {
    Case c = varied(kv_heads);
    c.groups_experts = true;
    return c;
  }
};

TEST_P(GroupedFamilies, EqualAutograd) {
  for (const auto& [tp, kv_heads] : {std::pair(1, 4), std::pair(2, 4), std::pair(4, 2)})
    expect_equals_autograd(grouped(kv_heads), tp);
}

TEST_P(GroupedFamilies, DeferredAndRecomputedGradientsAreTheSameExactly) {
  expect_deferred_and_recomputed_are_exact(grouped(4));
}

constexpr auto name_of_variation = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Cases, Families, testing::ValuesIn(variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(NormsAndMlps, Families, testing::ValuesIn(norm_and_mlp_variations()),
                         name_of_variation);
INSTANTIATE_TEST_SUITE_P(Positions, Families, testing::ValuesIn(position_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(PartsOfFamilies, Families, testing::ValuesIn(part_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Values, Families, testing::ValuesIn(value_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(LayersOfFamilies, Families, testing::ValuesIn(layer_variations()),
                         name_of_variation);
INSTANTIATE_TEST_SUITE_P(Experts, Families, testing::ValuesIn(expert_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Experts, GroupedFamilies, testing::ValuesIn(expert_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(LayersOfFamilies, GroupedFamilies, testing::ValuesIn(layer_variations()),
                         name_of_variation);
INSTANTIATE_TEST_SUITE_P(Values, GroupedFamilies, testing::ValuesIn(value_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Tuned, GroupedFamilies, testing::ValuesIn(tuned_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Recurrent, Families, testing::ValuesIn(recurrent_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Tuned, Families, testing::ValuesIn(tuned_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Adapted, Families, testing::ValuesIn(adapted_variations()), name_of_variation);
INSTANTIATE_TEST_SUITE_P(Decomposed, Families, testing::ValuesIn(decomposed_variations()), name_of_variation);

// An MTP layer with experts behind latent attention, as DeepSeek-V3's; and one that attends, behind recurrent
// layers and with norms by 1 + weight, as Qwen 3 Next's.
std::vector<model::Outline> outlines_with_mtp() {
  std::vector<model::Outline> all;
  for (const bool tied : {false, true}) {
    model::Outline& latent = all.emplace_back(small_shape(12, 12, tied));
    latent.family = "deepseek_v3";
    latent.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
    latent.head_dim = 8;
    latent.rotated = 2;
    latent.experts = {
        .count = 6, .per_token = 2, .hidden = 7, .shared_hidden = 5, .sigmoid = true, .corrected = true};
    latent.block_types = {{}, {.experts = true}};
  }
  model::Outline& hybrid = all.emplace_back(small_shape(12, 4, false));
  hybrid.family = "qwen3_next";
  hybrid.norm_offset = 1;
  hybrid.gated = true;
  hybrid.qk_norm = model::QkNorm::kEachHead;
  hybrid.recurrent = {.key_heads = 4, .value_heads = 12, .key_width = 4, .value_width = 3, .convolution = 4};
  hybrid.block_types = {{}, {.recurrent = true}};
  for (model::Outline& outline : all) outline.mtp = true;
  return all;
}

TEST(Model, MtpLayerEqualsAutograd) {
  for (const model::Outline& outline : outlines_with_mtp()) {
    SCOPED_TRACE(outline.family);
    Case c{outline, {5, 1, 9, 17, 2}};
    c.mtp_loss_weight = 0.3;
    const Data data = random_data(c);
    const Outcome expected = run_twin(c, data);
    EXPECT_GT(expected.mtp_loss_sum, 0);
    for (const int tp : {1, 2, 4}) expect_equal(c, run_layers(c, data, tp), expected, 1e-11);
    c.activations = Activations::kRecompute;
    expect_equal(c, run_layers(c, data, 2, Weights::kDeferred), expected, 1e-11);
  }
}

// Twenty steps of plain gradient descent.
TEST(Model, MtpLayerTrainsAsUnderAutograd) {
  Case c{outlines_with_mtp().front(), {5, 1, 9, 17, 2}};
  c.mtp_loss_weight = 0.3;
  Data ours = random_data(c), theirs = ours;
  for (at::Tensor& flat : theirs.flats) flat = flat.clone();
  const auto descend = [](const Outcome& outcome, Data& data) {
    for (size_t i = 0; i < data.flats.size(); ++i) data.flats[i].sub_(outcome.gradients[i] * 1e-3);
  };
  std::vector<double> mtp_losses;
  for (int step = 0; step < 20; ++step) {
    const Outcome own = run_layers(c, ours, 2), expected = run_twin(c, theirs);
    mtp_losses.push_back(own.mtp_loss_sum);
    EXPECT_NEAR(own.loss_sum, expected.loss_sum, 1e-10 * expected.loss_sum);
    EXPECT_NEAR(own.mtp_loss_sum, expected.mtp_loss_sum, 1e-10 * expected.mtp_loss_sum);
    descend(own, ours);
    descend(expected, theirs);
  }
  EXPECT_LT(mtp_losses.back(), mtp_losses.front());
}

// Heads and widths differ by layer. The second layer has no MLP: it only mixes. The third has no attention:
// it only feeds forward.
Case of_own_layers() {
  Case c{small_shape(12, 2, true), {5, 1, 9, 17}};
  c.model.layers = 4;
  c.layers.assign(4, c.model);
  c.layers[0].heads = 6;
  c.layers[0].head_dim = 4;
  c.layers[0].ffn_hidden = 31;
  c.layers[1].ffn_hidden = 0;
  c.layers[2].heads = 0;
  c.layers[3].qk_norm = model::QkNorm::kEachHead;
  for (const Outline& layer : c.layers) {
    model::Layer own = model::usual_layer(layer.heads > 0 ? layer : c.model, {});
    if (layer.heads == 0) own.parts.erase(own.parts.begin());
    c.model.block_types.push_back({.own = {std::make_shared<const model::Layer>(std::move(own))}});
  }
  return c;
}

TEST(Model, LayersOfTheirOwnEqualAutograd) {
  Case c = of_own_layers(), tuned = c;
  model::adapt(tuned.model, {.rank = 2, .alpha = 3, .targets = {"q_proj", "down_proj"}});
  const Data data = random_data(c), tuned_data = random_data(tuned);
  for (const int tp : {1, 2}) expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 1e-11);
  tuned.activations = Activations::kRecompute;
  expect_equal(tuned, run_layers(tuned, tuned_data, 1), run_twin(tuned, tuned_data), 1e-11);
}

TEST(Model, BalanceOfExpertsIsThatOfWholeSequences) {
  Case c{small_shape(12, 4, true), {5, 1, 9, 17, 2, 1}};
  c.model.experts = {.count = 6, .per_token = 2, .hidden = 7, .normalised = true};
  c.moe_aux_loss_coeff = 0.3;
  const Data data = random_data(c);
  for (const int tp : {1, 2, 4}) expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 1e-11);
}

// The loads are random weights, any positive numbers. Only rows that stand for tokens are counted.
TEST(Model, BalanceOfExpertsOverTheLastStepIsByItsLoads) {
  Case c{small_shape(12, 4, true), {5, 1, 9, 17, 2, 1}};
  c.model.experts = {.count = 6, .per_token = 2, .hidden = 7, .normalised = true, .remembers_loads = true};
  c.moe_aux_loss_coeff = 0.3;
  const Data data = random_data(c);
  for (const int tp : {1, 2, 4}) expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 1e-11);
}

TEST(Model, DeferredWeightGradientsEqualFusedOnesExactly) {
  const Case c{small_shape(12, 4, true), {5, 1, 9, 17}};
  const Data data = random_data(c);
  for (const int tp : {1, 2, 4}) {
    expect_equal(c, run_layers(c, data, tp, Weights::kDeferred), run_layers(c, data, tp), 0.0);
  }
}

TEST(Model, RecomputedActivationsGiveTheSameGradientsExactly) {
  Case c{small_shape(12, 4, true), {5, 1, 9, 17}};
  const Data data = random_data(c);
  for (const int tp : {1, 2, 4}) {
    const Outcome kept = run_layers(c, data, tp);
    c.activations = Activations::kRecompute;
    expect_equal(c, run_layers(c, data, tp), kept, 0.0);
    expect_equal(c, run_layers(c, data, tp, Weights::kDeferred), kept, 0.0);
    c.activations = Activations::kKeep;
  }
}

// The forward's saved attention results are falsified: running attention again in backward would show.
TEST(Model, RecomputingNeverRunsAttentionAgain) {
  Case c{small_shape(12, 4, false), {5, 1, 9, 17}};
  const Data data = random_data(c);
  const Outcome right = run_layers(c, data, 2);
  c.activations = Activations::kRecompute;
  c.lse_error = 0.5;
  const Outcome recomputed = run_layers(c, data, 2);
  EXPECT_FALSE(at::equal(recomputed.gradients[1], right.gradients[1]));
  Case kept = c;
  kept.activations = Activations::kKeep;
  expect_equal(c, run_layers(kept, data, 2), recomputed, 0.0);
}

TEST(Model, PackedSequencesEqualSeparateOnes) {
  const Case packed{small_shape(12, 4, false), {7, 1, 20}};
  const Data data = random_data(packed);
  Outcome sum;
  auto begin = data.ids.begin();
  for (const int64_t length : packed.lengths) {
    const auto offset = begin - data.ids.begin();
    const Data alone{data.flats,
                     {begin, begin + length},
                     {data.targets.begin() + offset, data.targets.begin() + offset + length}};
    const Outcome outcome = run_layers({packed.model, {length}}, alone, 2);
    sum.loss_sum += outcome.loss_sum;
    for (size_t i = 0; i < outcome.gradients.size(); ++i) {
      if (sum.gradients.size() == i) sum.gradients.push_back(at::zeros_like(outcome.gradients[i]));
      sum.gradients[i].add_(outcome.gradients[i]);
    }
    begin += length;
  }
  expect_equal(packed, run_layers(packed, data, 2), sum, 1e-13);
}

TEST(Model, HeadChunksDoNotChangeTheResult) {
  Case c{small_shape(12, 4, false), {60, 50, 61, 64}};
  const Data data = random_data(c);
  const Outcome whole = run_layers(c, data, 2);
  c.logits_chunk_bytes = 1;  // 64 rows a chunk
  expect_equal(c, run_layers(c, data, 2), whole, 1e-13);
}

// All rows are masked but one of the first sequence and the second one's end, which lies on one TP rank.
TEST(Model, FewRowsWithALossGiveTheirLossAndGradients) {
  const Case c{small_shape(12, 4, true), {20, 15, 9}};
  Data data = random_data(c);
  for (size_t row = 0; row < data.targets.size(); ++row) {
    if (row != 2 && (row < 27 || row >= 33)) data.targets[row] = -1;
  }
  for (const int tp : {1, 2, 4}) expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 1e-12);
}

TEST(Model, SequencesWithoutTargetsGiveZeroLossAndGradients) {
  const Case c{small_shape(12, 4, false), {1, 1, 1}};
  const Outcome outcome = run_layers(c, random_data(c), 2);
  EXPECT_EQ(outcome.loss_sum, 0.0);
  for (const at::Tensor& gradient : outcome.gradients) EXPECT_EQ(gradient.abs().max().item<double>(), 0.0);
}

TEST(Model, SinglePrecisionIsClose) {
  const Case c{small_shape(12, 4, false), {5, 1, 9, 17}, at::kFloat};
  const Data data = random_data(c);
  for (const int tp : {1, 2}) expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 2e-5);
}

TEST(Model, BFloat16IsNear) {
  const Case c{small_shape(12, 4, false), {5, 1, 9, 17}, at::kBFloat16};
  const Data data = random_data(c);
  for (const int tp : {1, 2}) expect_equal(c, run_layers(c, data, tp), run_twin(c, data), 0.1);
}

Case dense_case(at::ScalarType dtype, int64_t head_dim) {
  Case c{small_shape(12, 4, true), {5, 1, 9, 17}, dtype};
  c.model.head_dim = head_dim;
  return c;
}

TEST(DeviceModel, DoubleEqualsAutograd) { expect_gpu_equals_autograd(dense_case(at::kDouble, 6), 1e-11); }
TEST(DeviceModel, FloatIsClose) { expect_gpu_equals_autograd(dense_case(at::kFloat, 6), 1e-4); }
TEST(DeviceModel, BFloat16IsNear) { expect_gpu_equals_autograd(dense_case(at::kBFloat16, 6), 0.1); }
TEST(DeviceModel, BFloat16ExpertsAreNear) {
  Case c = dense_case(at::kBFloat16, 8);
  c.model.experts = {.count = 5, .per_token = 2, .hidden = 16, .normalised = true};
  expect_gpu_equals_autograd(c, 0.1);
}
TEST(DeviceModel, BFloat16WithFusedAttentionIsNear) {
  expect_gpu_equals_autograd(dense_case(at::kBFloat16, 8), 0.1);
}

}  // namespace
}  // namespace sluice::layers

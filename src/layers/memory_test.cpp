// Layers keep and have at work what model/kind.h counts, by the allocator's count. One rank: all of the
// process's tensors are its own.
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "layers/make_operation.h"
#include "layers/operation.h"
#include "model/model_figures.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "ops/tensor_memory.h"

namespace sluice::layers {
namespace {

constexpr int64_t kRows = 1024;

// One operation, the first layer by default, in FP32.
class OneLayer {
 public:
  // `pushed`: rows are almost equal, so that they choose the same experts.
  explicit OneLayer(const model::Outline& outline, bool pushed = false,
                    const std::vector<PieceSpan>& pieces = {{kRows / 4}, {3 * kRows / 4}},
                    int64_t position = 1)
      : pushed_(pushed),
        table_(model::parameter_table(outline)),
        context_(layer_context(outline, {}, kRows, at::dtype(at::kFloat))) {
    for (const model::Bucket& bucket : table_.buckets) {
      weights_.push_back(at::randn({bucket.size}));
      sums_.push_back(at::zeros({bucket.size}));
    }
    const auto of = [](const std::vector<at::Tensor>& flats) {
      return [&flats](int bucket) { return flats[static_cast<size_t>(bucket)]; };
    };
    operation_ = make_operation(context_, table_, position, of(weights_), of(sums_));
    flow_.layout = row_layout(pieces, 1, at::kCPU, reach_of(outline));
  }

  at::Tensor row() const {
    const at::Tensor each = at::randn({kRows, context_.model.hidden()});
    return pushed_ ? each.mul(1e-3).add_(at::randn({1, context_.model.hidden()})) : each;
  }

  at::Tensor forward(const at::Tensor& x, StatePtr& saved) {
    flow_.activation_SH = x;
    saved = operation_->forward(flow_, Purpose::kTrain);
    return std::move(flow_.activation_SH);
  }
  // Gives every row a target, and one of the MTP layer.
  void give_targets() {
    const std::vector<int64_t> ids(kRows, 1);
    flow_.targets = targets(ids, {}, at::kCPU);
    flow_.mtp = {row_values(ids, flow_.layout, at::kCPU), flow_.targets};
  }
  // Computes all experts at once, as on a GPU.
  void group_experts() { context_.groups_experts = true; }
  void drop_recomputable(State& saved) const { operation_->drop_recomputable(saved); }
  at::Tensor backward(StatePtr saved, const at::Tensor& dy) {
    flow_.gradient_SH = dy;
    operation_->backward(flow_, std::move(saved));
    return std::move(flow_.gradient_SH);
  }

 private:
  bool pushed_;
  model::ParameterTable table_;
  LayerContext context_;
  std::vector<at::Tensor> weights_, sums_;
  std::unique_ptr<Operation> operation_;
  Flow flow_;
};

// Peak bytes of tensors while `work` runs, less those before it, per row.
template <typename Work>
double bytes_a_row(Work work) {
  ops::reset_peak_tensor_bytes(at::kCPU);
  const int64_t before = ops::peak_tensor_bytes(at::kCPU);
  const auto result = work();
  return static_cast<double>(ops::peak_tensor_bytes(at::kCPU) - before) / kRows;
}

model::Outline shape_of(int64_t hidden, int64_t kv_heads, int64_t ffn) {
  return {.layers = 1,
          .hidden = hidden,
          .heads = 4,
          .kv_heads = kv_heads,
          .head_dim = hidden / 4,
          .ffn_hidden = ffn,
          .vocab = 512};
}

// Elements per row: SwiGLU's output F, and backward's memory beside the forward's saved tensors.
struct Counted {
  model::Outline model;
  double forward;
  double backward;
};

TEST(Memory, LayersHaveAtWorkWhatTheFormulasSay) {
  ops::count_host_tensors();
  for (const Counted& c :
       {Counted{shape_of(128, 2, 344), 344, 344 + 3 * 128}, Counted{shape_of(64, 1, 400), 400, 2 * 400},
        Counted{shape_of(128, 4, 128), 128, 128 + 3 * 128}}) {
    OneLayer layer(c.model);
    const at::Tensor x = layer.row(), dy = layer.row();
    const double tolerance = 0.01 * 4.0 * c.backward;
    const model::TokenBytes counted = model::Program(c.model).kind_at(1).bytes({1}, 4);
    const auto kept = static_cast<double>(counted.saved);
    StatePtr saved;
    // Its output comes on top.
    EXPECT_NEAR(bytes_a_row([&] { return layer.forward(x, saved); }), kept + 4.0 * c.forward, tolerance);
    EXPECT_NEAR(bytes_a_row([&] { return layer.backward(std::move(saved), dy); }), 4.0 * c.backward,
                tolerance);
    layer.forward(x, saved);
    layer.drop_recomputable(*saved);
    EXPECT_EQ(saved->recomputed_bytes(), counted.recomputed * kRows);
    const auto recomputed = static_cast<double>(counted.recomputed);
    EXPECT_NEAR(bytes_a_row([&] { return layer.backward(std::move(saved), dy); }),
                recomputed + 4.0 * c.backward, tolerance);
  }
}

// The head's working memory, in which its MTP layer goes forward and backward.
TEST(Memory, AnMtpLayerHasAtWorkNoMoreThanCounted) {
  ops::count_host_tensors();
  for (model::Outline outline : {shape_of(128, 2, 344), shape_of(64, 1, 400), shape_of(128, 4, 128)}) {
    outline.family = "deepseek_v3";
    outline.mtp = true;
    const model::Program program(outline);
    OneLayer head(outline, false, {{kRows / 4}, {3 * kRows / 4}}, program.head());
    head.give_targets();
    const at::Tensor x = head.row();
    const model::Kind& kind = program.kind_at(program.head());
    const model::TokenBytes counted = kind.mtp_bytes({1}, 4);
    const int64_t logits = outline.vocab * 4, of_head = kind.bytes({1}, 4).forward + logits;
    const auto most = static_cast<double>(counted.saved + std::max(counted.transient(), of_head));
    StatePtr saved;
    const double measured = bytes_a_row([&] { return head.forward(x, saved); });
    EXPECT_LE(measured, most) << outline.hidden;
    EXPECT_GE(measured, 0.8 * most) << outline.hidden;
  }
}

// Once with random rows; once with rows so alike that all choose the same experts, which then have all rows
// at once.
TEST(Memory, ExpertsHaveAtWorkNoMoreThanCountedWhateverTheRouting) {
  ops::count_host_tensors();
  model::Outline outline = shape_of(128, 2, 256);
  outline.experts = {.count = 8, .per_token = 2, .hidden = 192, .shared_hidden = 96, .shared_gate = true};
  for (const bool pushed : {false, true}) {
    OneLayer layer(outline, pushed);
    const model::TokenBytes counted = model::Program(outline).kind_at(1).bytes({1}, 4);
    const at::Tensor x = layer.row(), dy = layer.row();
    StatePtr saved;
    const double output = 4.0 * 128;
    const double forward = bytes_a_row([&] { return layer.forward(x, saved); });
    EXPECT_EQ(saved->bytes(), counted.saved * kRows);
    EXPECT_LE(forward, static_cast<double>(counted.saved + counted.forward));
    const double backward = bytes_a_row([&] { return layer.backward(std::move(saved), dy); });
    EXPECT_LE(backward, static_cast<double>(counted.backward) + output);
    if (!pushed) continue;
    EXPECT_GE(forward, 0.9 * static_cast<double>(counted.saved + counted.forward));
    EXPECT_GE(backward, 0.8 * static_cast<double>(counted.backward));
    layer.forward(x, saved);
    layer.drop_recomputable(*saved);
    EXPECT_EQ(saved->bytes(), counted.recompute_input * kRows);
    EXPECT_EQ(saved->recomputed_bytes(), counted.recomputed * kRows);
    EXPECT_LE(bytes_a_row([&] { return layer.backward(std::move(saved), dy); }),
              static_cast<double>(counted.recomputed + counted.backward) + output);
  }
}

// Experts all at once hold rows of all assignments, which no routing changes.
TEST(Memory, GroupedExpertsHaveAtWorkWhatIsCountedForThem) {
  ops::count_host_tensors();
  model::Outline outline = shape_of(128, 2, 256);
  outline.experts = {.count = 8, .per_token = 3, .hidden = 192, .shared_hidden = 96, .shared_gate = true};
  for (const bool pushed : {false, true}) {
    OneLayer layer(outline, pushed);
    layer.group_experts();
    const model::TokenBytes counted = model::Program(outline).kind_at(1).bytes({1}, 4);
    const auto grouped = static_cast<double>(model::grouped_experts_bytes(outline, 4));
    const at::Tensor x = layer.row(), dy = layer.row();
    StatePtr saved;
    const double forward = bytes_a_row([&] { return layer.forward(x, saved); });
    EXPECT_EQ(saved->bytes(), counted.saved * kRows);
    EXPECT_LE(forward, static_cast<double>(counted.saved) + grouped);
    const double backward = bytes_a_row([&] { return layer.backward(std::move(saved), dy); });
    EXPECT_LE(backward, grouped + 4.0 * 128);
    EXPECT_GE(backward, 0.85 * grouped);
  }
}

model::Recurrent recurrent_of(model::Recurrence recurrence, int64_t key_heads, int64_t key_width,
                              int64_t value_width) {
  const bool gla = recurrence == model::Recurrence::kGla, kda = recurrence == model::Recurrence::kKda;
  return {.recurrence = recurrence,
          .key_heads = key_heads,
          .value_heads = 4,
          .key_width = key_width,
          .value_width = value_width,
          .convolution = gla ? 1 : 4,
          .decay_rank = gla   ? 16
                        : kda ? value_width
                              : 0,
          .convolution_bias = recurrence == model::Recurrence::kMamba2};
}

TEST(Memory, RecurrentLayersHaveAtWorkNoMoreThanCounted) {
  using enum model::Recurrence;
  ops::count_host_tensors();
  for (const model::Recurrent& recurrent :
       {recurrent_of(kGatedDelta, 2, 32, 48), recurrent_of(kGatedDelta, 4, 96, 96),
        recurrent_of(kMamba2, 1, 64, 32), recurrent_of(kMamba2, 4, 16, 80), recurrent_of(kGla, 4, 32, 48),
        recurrent_of(kGla, 4, 80, 64), recurrent_of(kKda, 4, 32, 48), recurrent_of(kKda, 4, 80, 64)}) {
    model::Outline outline = shape_of(128, 2, recurrent.recurrence == kMamba2 ? 0 : 256);
    outline.recurrent = recurrent;
    outline.block_types = {{.recurrent = true}};
    OneLayer layer(outline);
    const model::TokenBytes counted = model::Program(outline).kind_at(1).bytes({1}, 4);
    const at::Tensor x = layer.row(), dy = layer.row();
    StatePtr saved;
    const double output = 4.0 * 128;
    const double forward = bytes_a_row([&] { return layer.forward(x, saved); });
    EXPECT_EQ(saved->bytes(), counted.saved * kRows);
    EXPECT_LE(forward, static_cast<double>(counted.saved + counted.forward));
    EXPECT_GE(forward, 0.6 * static_cast<double>(counted.saved + counted.forward));
    const double backward = bytes_a_row([&] { return layer.backward(std::move(saved), dy); });
    EXPECT_LE(backward, static_cast<double>(counted.backward) + output);
    EXPECT_GE(backward, 0.6 * static_cast<double>(counted.backward));
    layer.forward(x, saved);
    layer.drop_recomputable(*saved);
    EXPECT_EQ(saved->bytes(), counted.recompute_input * kRows);
    EXPECT_EQ(saved->recomputed_bytes(), counted.recomputed * kRows);
    EXPECT_LE(bytes_a_row([&] { return layer.backward(std::move(saved), dy); }),
              static_cast<double>(counted.recomputed + counted.backward) + output);
    // Sequences shorter than chunks have many states, so heads run one after the other.
    OneLayer of_short(outline, false, std::vector<PieceSpan>(kRows / 16, PieceSpan{16}));
    EXPECT_LE(bytes_a_row([&] { return of_short.forward(x, saved); }),
              static_cast<double>(counted.saved + counted.forward));
    EXPECT_LE(bytes_a_row([&] { return of_short.backward(std::move(saved), dy); }),
              static_cast<double>(counted.backward) + output);
  }
}

}  // namespace
}  // namespace sluice::layers

// What layers keep by the formulas, and what they have at work as model/kind.h counts it, against the
// allocator's count. One rank: all of the process's tensors are its own.
#include "layers/memory.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "layers/decoder_layer.h"
#include "model/parameters.h"
#include "ops/tensor_memory.h"

namespace sluice::layers {
namespace {

constexpr int64_t kRows = 1024;

// In FP32.
class OneLayer {
 public:
  explicit OneLayer(const model::Shape& shape)
      : table_(model::parameter_table(shape)),
        context_(layer_context(shape, {}, kRows, at::dtype(at::kFloat))),
        layout_(micro_batch_layout(std::vector<PieceSpan>{{kRows / 4}, {3 * kRows / 4}}, 1, at::kCPU)) {
    for (const model::Bucket& bucket : table_.buckets) {
      weights_.push_back(at::randn({bucket.size}));
      sums_.push_back(at::zeros({bucket.size}));
    }
  }

  at::Tensor row() const { return at::randn({kRows, context_.shape.hidden}); }
  LayerParameters weights() const { return layer_parameters(table_.layer(0), weights_[1], 1, 0); }
  LayerParameters sums() const { return layer_parameters(table_.layer(0), sums_[1], 1, 0); }

  at::Tensor forward(const at::Tensor& x, LayerSaved& saved) const {
    return layer_forward(context_, layout_, weights(), x, &saved);
  }
  at::Tensor backward(LayerSaved saved, const at::Tensor& dy) const {
    return layer_backward(context_, layout_, weights(), std::move(saved), dy, sums());
  }

 private:
  model::ParameterTable table_;
  LayerContext context_;
  MicroBatchLayout layout_;
  std::vector<at::Tensor> weights_, sums_;
};

// The most that tensors take while `work` runs, beyond what they take before it.
template <typename Work>
double bytes_a_row(Work work) {
  ops::reset_peak_tensor_bytes(at::kCPU);
  const int64_t before = ops::peak_tensor_bytes(at::kCPU);
  const auto result = work();
  return static_cast<double>(ops::peak_tensor_bytes(at::kCPU) - before) / kRows;
}

model::Shape shape_of(int64_t hidden, int64_t kv_heads, int64_t ffn) {
  return {.layers = 1,
          .hidden = hidden,
          .heads = 4,
          .kv_heads = kv_heads,
          .head_dim = hidden / 4,
          .ffn_hidden = ffn,
          .vocab = 512};
}

// Elements a row: SwiGLU's output F, and what the backward has beside what the forward saved.
struct Case {
  model::Shape shape;
  double forward;
  double backward;
};

TEST(Memory, LayersHaveAtWorkWhatTheFormulasSay) {
  ops::count_host_tensors();
  for (const Case& c :
       {Case{shape_of(128, 2, 344), 344, 344 + 3 * 128}, Case{shape_of(64, 1, 400), 400, 2 * 400},
        Case{shape_of(128, 4, 128), 128, 128 + 3 * 128}}) {
    OneLayer layer(c.shape);
    const at::Tensor x = layer.row(), dy = layer.row();
    const double tolerance = 0.01 * 4.0 * c.backward;
    const LayerCut cut{1, 0, 4};
    const double kept = static_cast<double>(saved_bytes(c.shape, cut, kRows)) / kRows;
    LayerSaved saved;
    // Its output comes on top.
    EXPECT_NEAR(bytes_a_row([&] { return layer.forward(x, saved); }), kept + 4.0 * c.forward, tolerance);
    EXPECT_NEAR(bytes_a_row([&] { return layer.backward(std::move(saved), dy); }), 4.0 * c.backward,
                tolerance);
    layer.forward(x, saved = {});
    drop_recomputable(saved);
    const double recomputed = static_cast<double>(recomputed_bytes(c.shape, cut, kRows)) / kRows;
    EXPECT_NEAR(bytes_a_row([&] { return layer.backward(std::move(saved), dy); }),
                recomputed + 4.0 * c.backward, tolerance);
  }
}

}  // namespace
}  // namespace sluice::layers

// The cost of the head for a batch in which few rows have a loss: 4,096 rows of a model 512 wide with
// 32,768 ids, on one rank of this machine. First, losses are compared with those of the same rows in a
// full batch. Prints processor time and bytes of tensors, beside a batch in which every row has a
// loss.
//   masked_head_bench [REPEATS]     5 repeats, behind one to warm up; 0 compares the losses alone
#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "layers/head.h"
#include "model/layer_of.h"
#include "model/outline.h"
#include "ops/tensor_memory.h"

namespace sluice {
namespace {

constexpr int64_t kRows = 4096;

struct Head {
  layers::LayerContext context;
  layers::HeadParameters weights, gradients;
  at::Tensor x_SH;
};

Head make_head() {
  const model::Outline outline{.layers = 1,
                               .hidden = 512,
                               .heads = 8,
                               .kv_heads = 8,
                               .head_dim = 64,
                               .ffn_hidden = 1376,
                               .vocab = 32'768};
  Head head{.context = layers::layer_context(outline, {}, 64, at::dtype(at::kFloat))};
  static const model::Head values = model::head_of(outline);
  head.weights = {.kind = &values,
                  .final_norm_H = at::ones({outline.hidden}),
                  .output_VH = 0.02 * at::randn({outline.vocab, outline.hidden}),
                  .vocabulary = {0, outline.vocab}};
  head.gradients = {.final_norm_H = at::zeros({outline.hidden}),
                    .output_VH = at::zeros({outline.vocab, outline.hidden}),
                    .vocabulary = {0, outline.vocab}};
  head.x_SH = at::randn({kRows, outline.hidden});
  return head;
}

struct Measured {
  double loss = 0;
  double cpu_s = 0;
  int64_t peak_bytes = 0;
};

// Every `stride`th row has a loss.
Measured measure(const Head& head, int64_t stride, int repeats) {
  std::vector<int64_t> target_of_row(kRows, -1);
  for (int64_t row = 0; row < kRows; row += stride) {
    target_of_row[static_cast<size_t>(row)] = row * 7919 % head.context.model.vocab();
  }
  const layers::Targets targets = layers::targets(target_of_row, {}, at::kCPU);
  Measured measured;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const int64_t before = ops::held_tensor_bytes(at::kCPU);
    ops::reset_peak_tensor_bytes(at::kCPU);
    const std::clock_t start = std::clock();
    const layers::HeadResult result =
        layers::head_forward_backward(head.context, head.weights, head.x_SH, targets, head.gradients);
    measured.loss = result.sums[0].item<double>();
    if (repeat > 0) measured.cpu_s += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / repeats;
    measured.peak_bytes = ops::peak_tensor_bytes(at::kCPU) - before;
  }
  return measured;
}

int run(int repeats) {
  ops::count_host_tensors();
  const Head head = make_head();
  Head few = head;
  few.x_SH = head.x_SH.slice(0, 0, kRows, 20).repeat_interleave(20, 0).narrow(0, 0, kRows).contiguous();
  const Measured all = measure(head, 1, repeats), sparse = measure(head, 20, repeats),
                 same = measure(few, 20, repeats);
  if (std::abs(sparse.loss - same.loss) > 1e-6 * std::abs(same.loss)) {
    std::fprintf(stderr, "rows without a loss change the loss: %.9g, %.9g\n", sparse.loss, same.loss);
    return EXIT_FAILURE;
  }
  if (repeats == 0) return EXIT_SUCCESS;
  std::printf("%-22s %10s %14s\n", "rows with a loss", "CPU ms", "peak MiB");
  for (const auto& [name, each] : {std::pair{"all", all}, std::pair{"one of 20", sparse}}) {
    std::printf("%-22s %10.1f %14.1f\n", name, each.cpu_s * 1e3,
                static_cast<double>(each.peak_bytes) / (1 << 20));
  }
  std::printf("%-22s %9.1f%% %13.1f%%\n", "of all", 100 * sparse.cpu_s / all.cpu_s,
              100 * static_cast<double>(sparse.peak_bytes) / static_cast<double>(all.peak_bytes));
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::run(argc > 1 ? std::atoi(argv[1]) : 5); }

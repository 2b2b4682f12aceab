// The time of a recurrent layer's operator on this machine, forward and backward, as tables in Markdown:
// bench/record.py recurrence writes them. One table is by rows of a chunk, beside the chosen size. The other
// divides by matrix products of as many multiply-adds on as many threads.
//
//   recurrence_bench
#include "ops/recurrence.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/steady_time.h"
#include "model/outline.h"
#include "model/program.h"

namespace {

using namespace sluice;

constexpr int64_t kHeads = 8, kWidth = 64;
constexpr int kRounds = 9;

struct Load {
  const char* name;
  std::vector<int64_t> lengths;
  bool delta;
  bool by_channel;
};

int64_t rows_of(const Load& load) {
  int64_t rows = 0;
  for (const int64_t length : load.lengths) rows += length;
  return rows;
}

ops::RecurrenceInput input_of(const Load& load) {
  const int64_t rows = rows_of(load);
  const auto random = [&](std::vector<int64_t> sizes) { return at::randn(sizes, at::kFloat); };
  const at::Tensor k = random({rows, kHeads, kWidth});
  const at::Tensor decay = load.by_channel ? random({rows, kHeads, kWidth}) : random({rows, kHeads});
  return {random({rows, kHeads, kWidth}),      k / k.norm(2, {2}, true),
          random({rows, kHeads, kWidth}),      -0.05 * decay.square(),
          at::sigmoid(random({rows, kHeads})), load.delta};
}

// The least of several rounds, in which functions alternate; milliseconds.
std::vector<double> milliseconds(const std::vector<std::function<void()>>& all) {
  std::vector<double> least(all.size(), 1e30);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t begin = base::now_ns();
      all[i]();
      const double took = static_cast<double>(base::now_ns() - begin) / 1e6;
      if (round > 0) least[i] = std::min(least[i], took);
    }
  }
  return least;
}

std::function<void()> pass_of(const Load& load, int64_t chunk) {
  const int64_t rows = rows_of(load);
  return [input = input_of(load), dout = at::randn({rows, kHeads, kWidth}, at::kFloat),
          chunks = ops::recurrence_chunks(load.lengths, rows, at::kCPU, chunk)] {
    const at::Tensor out = ops::Recurrence(input, chunks).forward({});
    ops::Recurrence(input, chunks).backward(dout, {}, {});
  };
}

// Three products of so many multiply-adds, as forward and backward of a matrix have.
std::function<void()> products_of(int64_t rows) {
  model::Outline outline = model::named_outline("llama-7b");
  outline.recurrent = {.key_heads = kHeads,
                       .value_heads = kHeads,
                       .key_width = kWidth,
                       .value_width = kWidth,
                       .convolution = 1};
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.recurrent = true});
  const int64_t scanned = model::Program(outline).kind_at(1).work().scanned;
  const int64_t inner = 512, outer = scanned / inner;
  const at::Tensor x = at::randn({rows, inner}), w = at::randn({inner, outer}), dy = at::randn({rows, outer});
  return [=] {
    at::mm(x, w);
    at::mm(dy, w.t());
    at::mm(x.t(), dy);
  };
}

}  // namespace

int main() {
  at::manual_seed(1);
  const std::vector<Load> loads = {
      {"gated delta rule, one of 4096", {4096}, true, false},
      {"gated delta rule, 16 of 256", std::vector<int64_t>(16, 256), true, false},
      {"gated delta rule, 100 of 40", std::vector<int64_t>(100, 40), true, false},
      {"by channel with delta rule, one of 4096", {4096}, true, true},
      {"by head without (Mamba-2), one of 4096", {4096}, false, false},
      {"by channel without (GLA), one of 4096", {4096}, false, true}};
  std::printf(
      "%d threads, %lld heads of %lld x %lld, single precision; milliseconds of a forward and a "
      "backward:\n\n",
      at::get_num_threads(), static_cast<long long>(kHeads), static_cast<long long>(kWidth),
      static_cast<long long>(kWidth));
  std::printf(
      "| load | 16 rows | 32 | 64 | 128 | chosen | over the best | over products "
      "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const Load& load : loads) {
    std::printf("| %s |", load.name);
    std::vector<std::function<void()>> all;
    for (const int64_t chunk : {16, 32, 64, 128, 0}) all.push_back(pass_of(load, chunk));
    all.push_back(products_of(rows_of(load)));
    const std::vector<double> ms = milliseconds(all);
    for (size_t i = 0; i < 5; ++i) std::printf(" %.1f |", ms[i]);
    std::printf(" %.2f | %.1f |\n", ms[4] / *std::min_element(ms.begin(), ms.begin() + 4), ms[4] / ms[5]);
  }
  return 0;
}

// 8-bit products on this CPU: their speed, whether plans predict the time of layers, and the noise that
// rounding adds to gradients, beside the prediction of the measure by which layers are chosen.
#include "session/low_precision_gemms.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "layers/head.h"
#include "layers/make_operation.h"
#include "layers/operation.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "ops/linear.h"
#include "ops/low_precision_gemm.h"
#include "profile/probe.h"
#include "profile/timing.h"

namespace sluice {
namespace {

using base::GemmFormat;
using profile::Stopwatch;

constexpr int kRounds = 9;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Median times in milliseconds of functions that run alternately.
std::vector<double> times_ms(const std::vector<std::function<void()>>& functions) {
  std::vector<std::vector<double>> times(functions.size());
  for (const auto& function : functions) function();
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < functions.size(); ++i) {
      Stopwatch stopwatch(at::kCPU);
      functions[i]();
      times[i].push_back(stopwatch.lap_ns() / 1e6);
    }
  }
  std::vector<double> medians;
  for (auto& each : times) medians.push_back(median(std::move(each)));
  return medians;
}

void print_products() {
  std::printf("| rows | columns | summed | float32 ms | int8 ms, rounding included | times as fast |\n");
  std::printf("|---:|---:|---:|---:|---:|---:|\n");
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{512, 512, 512},
                                {1024, 1536, 512},
                                {1024, 1024, 1024},
                                {2048, 2816, 1024},
                                {1024, 1024, 2048}}) {
    const at::Tensor left = at::randn({m, k}), right = at::randn({n, k});
    const std::vector<double> ms =
        times_ms({[&] { ops::times_transposed(left, right); },
                  [&] { ops::low_precision_gemm(GemmFormat::kInt8, left, right); }});
    std::printf("| %ld | %ld | %ld | %.2f | %.2f | %.2f |\n", m, n, k, ms[0], ms[1], ms[0] / ms[1]);
  }
}

model::Outline shape_of(int64_t layers) {
  model::Outline outline;
  outline.layers = layers;
  outline.hidden = 512;
  outline.heads = outline.kv_heads = 8;
  outline.head_dim = 64;
  outline.ffn_hidden = 1408;
  outline.vocab = 1024;
  return outline;
}

// A whole model on one rank: forward and backward of one micro-batch.
class Model {
 public:
  explicit Model(const model::Outline& outline, int64_t tokens)
      : outline_(outline), table_(model::parameter_table(outline)), tokens_(tokens) {
    at::manual_seed(11);
    for (const model::Bucket& bucket : table_.buckets) {
      at::Tensor flat = at::randn({bucket.size}).mul_(0.02);
      for (const model::Parameter& parameter : bucket.parameters) {
        if (parameter.columns == 1) flat.narrow(0, parameter.offset, parameter.size()).fill_(1);  // norms
      }
      weights_.push_back(std::move(flat));
      gradients_.push_back(at::zeros({bucket.size}));
    }
    ids_ = at::randint(outline.vocab, {tokens}, at::kLong);
  }

  int64_t layers() const { return outline_.layers; }
  // All gradients, concatenated.
  at::Tensor gradient(const std::vector<int>& narrow, layers::GemmErrors* errors = nullptr) {
    run(narrow, errors);
    return at::cat(gradients_);
  }

  void run(const std::vector<int>& narrow, layers::GemmErrors* errors = nullptr) {
    for (at::Tensor& gradient : gradients_) gradient.zero_();
    layers::LayerContext context = layers::layer_context(outline_, {}, tokens_, at::dtype(at::kFloat));
    context.low_precision = {.format = GemmFormat::kInt8, .layers = narrow, .errors = errors};
    const auto of = [](const std::vector<at::Tensor>& flats) {
      return [&flats](int bucket) { return flats[static_cast<size_t>(bucket)]; };
    };
    std::vector<std::unique_ptr<layers::Operation>> operations;
    for (int64_t position = 0; position < table_.program.size(); ++position)
      operations.push_back(layers::make_operation(context, table_, position, of(weights_), of(gradients_)));
    layers::Flow flow;
    flow.layout = layers::row_layout({{tokens_, 0}}, 1, at::kCPU, layers::reach_of(outline_));
    const std::vector<int64_t> ids(ids_.const_data_ptr<int64_t>(), ids_.const_data_ptr<int64_t>() + tokens_);
    std::vector<int64_t> targets(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    flow.id_T = layers::row_values(ids, flow.layout, at::kCPU);
    flow.targets = layers::targets(targets, context.parallel, at::kCPU);
    std::vector<layers::StatePtr> saved;
    for (const auto& operation : operations)
      saved.push_back(operation->forward(flow, layers::Purpose::kTrain));
    for (size_t i = operations.size() - 1; i-- > 0;) operations[i]->backward(flow, std::move(saved[i]));
  }

 private:
  model::Outline outline_;
  model::ParameterTable table_;
  int64_t tokens_;
  std::vector<at::Tensor> weights_, gradients_;
  at::Tensor ids_;
};

std::vector<int> first(int64_t count) {
  std::vector<int> layers(static_cast<size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

// Predicts steps with some layers in 8 bits from a run's own probe of one rank, and compares them with
// measured steps.
void print_prediction() {
  constexpr int64_t kLayers = 8, kTokens = 1024;
  Model model(shape_of(kLayers), kTokens);
  const profile::StageProbe::Options wide{.model = shape_of(kLayers), .longest_tokens = kTokens};
  profile::StageProbe::Options narrow = wide;
  narrow.low_precision = GemmFormat::kInt8;
  profile::StageProbe exact_probe(wide, {}), narrow_probe(narrow, {});
  const auto layer_ns = [&](profile::StageProbe& probe) {
    const profile::StageTimes times = probe.run({kTokens});
    return times[1].forward_ns + times[1].backward_ns;
  };
  std::vector<double> saved_ms, whole_ms;
  std::vector<std::vector<double>> measured(5);
  for (int round = 0; round < kRounds; ++round) {
    saved_ms.push_back((layer_ns(exact_probe) - layer_ns(narrow_probe)) / 1e6);
    for (size_t quarter = 0; quarter < measured.size(); ++quarter) {
      Stopwatch stopwatch(at::kCPU);
      model.run(first(kLayers * static_cast<int64_t>(quarter) / 4));
      measured[quarter].push_back(stopwatch.lap_ns() / 1e6);
    }
  }
  std::printf("| layers in int8, of %ld | measured ms | predicted ms | predicted over measured |\n", kLayers);
  std::printf("|---:|---:|---:|---:|\n");
  const double whole = median(measured[0]);
  for (size_t quarter = 0; quarter < measured.size(); ++quarter) {
    const int64_t layers = kLayers * static_cast<int64_t>(quarter) / 4;
    const double own = median(measured[quarter]);
    const double predicted = whole - static_cast<double>(layers) * median(saved_ms);
    std::printf("| %ld | %.0f | %.0f | %.3f |\n", layers, own, predicted, predicted / own);
  }
}

std::vector<size_t> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size()), rank(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

double rank_correlation(const std::vector<double>& one, const std::vector<double>& other) {
  const std::vector<size_t> a = ranks_of(one), b = ranks_of(other);
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double(a[i]) - double(b[i]), 2);
  const auto count = static_cast<double>(a.size());
  return 1 - 6 * squares / (count * (count * count - 1));
}

// Relative noise: the squared difference from the exact gradient, over the square of the gradient.
void print_noise() {
  constexpr int64_t kLayers = 12;
  Model model(shape_of(kLayers), 512);
  const at::Tensor exact = model.gradient({});
  const double own = exact.square().sum().item<double>();
  const auto noise = [&](const std::vector<int>& layers) {
    return (model.gradient(layers) - exact).square().sum().item<double>() / own;
  };
  layers::GemmErrors errors{.format = GemmFormat::kInt8};
  model.run({}, &errors);
  std::vector<session::GemmNoise> by_layer;
  for (const auto& layer : errors.by_layer) {
    const auto mean = [&](layers::GemmErrors::Figure figure) {
      const auto& [sum, count] = layer[static_cast<size_t>(figure)];
      return sum / static_cast<double>(count);
    };
    using enum layers::GemmErrors::Figure;
    by_layer.push_back({mean(kForward), mean(kInputGradient), mean(kWeightGradient), mean(kOfActivation),
                        mean(kOfGradient), layer[static_cast<size_t>(kGradientSquares)].sum});
  }
  const std::vector<double> told = session::sensitivities(by_layer);
  std::vector<double> measured;
  std::printf(
      "| layer | forward | input gradient | weight gradient | of activations | of gradients | sensitivity | "
      "noise of the gradient |\n");
  std::printf("|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    measured.push_back(noise({layer}));
    std::printf("| %d | %.2e | %.2e | %.2e | %.2f | %.2f | %.2e | %.2e |\n", layer, by_layer[at].forward,
                by_layer[at].input_gradient, by_layer[at].weight_gradient, by_layer[at].of_activation,
                by_layer[at].of_gradient, told[at], measured[at]);
  }
  const std::vector<size_t> rank = ranks_of(told);
  std::vector<int> quiet, loud;
  for (int layer = 0; layer < kLayers; ++layer)
    (rank[static_cast<size_t>(layer)] < kLayers / 2 ? quiet : loud).push_back(layer);
  const double of_quiet = noise(quiet), of_loud = noise(loud), of_all = noise(first(kLayers));
  std::printf(
      "\nRank correlation of sensitivity and noise: %.2f. Noise of the six least sensitive layers together: "
      "%.2e; of the six most sensitive: %.2e; of all, as in uniform low precision: %.2e, %.1f times the "
      "first.\n",
      rank_correlation(told, measured), of_quiet, of_loud, of_all, of_all / of_quiet);
}

int run() {
  at::set_num_threads(1);
  std::printf("One thread; medians of %d rounds in which both take turns.\n\n", kRounds);
  print_products();
  std::printf("\n");
  print_prediction();
  std::printf("\n");
  print_noise();
  return 0;
}

}  // namespace
}  // namespace sluice

int main() { return sluice::run(); }

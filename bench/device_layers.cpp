// Decoder layers and the head on one GPU in BF16: time and causal MFU of a training step and of each of its
// parts. Loads are packed lengths of real corpora, and single lengths from 4K to 128K. The output is lines of
// JSON, as those of bench/device_layers.py, which times the same layers in PyTorch. Usage:
//
//   device_layers_bench [--model 8b] [--layers 4] [--tokens 16384] [--data bench/data] [--only LOAD]
//
// Causal MFU is FLOPs ÷ time ÷ the GPU's dense BF16 peak. Every product counts once, as 2 FLOPs for each
// multiplication, and attention counts the pairs that the causal mask leaves:
//   layer forward:  2·T·(H·(Q + 2·K) + Q·H + 3·H·F) + 4·Q·Σ l·(l+1)/2     head forward: 2·T·H·V
// Here T tokens are in sequences of l, with hidden H, query width Q, key width K, FFN width F and vocabulary
// V. A backward counts twice its forward. Recomputation inside attention's backward does not count.
#include <cstdio>
#include <cstdlib>

#ifdef SLUICE_CUDA
#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "inputs.h"
#include "layers/head.h"
#include "layers/make_operation.h"
#include "layers/operation.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "model/roles.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/device.h"
#include "ops/embedding.h"
#include "ops/gated_activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rotary.h"
#include "ops/tensor_memory.h"
#include "runtime/link_kernels.h"
#include "runtime/optimizer_kernels.h"

namespace sluice {
namespace {

constexpr double kPeakFlops = 989e12;  // H100 and H200 SXM, dense BF16
constexpr double kBudgetMs = 400;      // target time for each part
constexpr int kLeastRepetitions = 3;
constexpr int kMostRepetitions = 20;

const at::Device kGpu(at::kCUDA, 0);
const at::TensorOptions kNarrow = at::TensorOptions().dtype(at::kBFloat16).device(kGpu);

struct Load {
  std::string name;
  std::vector<int64_t> lengths;
  int64_t tokens() const {
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
  double causal_pairs() const {
    double pairs = 0;
    for (const int64_t length : lengths)
      pairs += static_cast<double>(length) * static_cast<double>(length + 1) / 2;
    return pairs;
  }
};

// The file's first documents that fill `tokens`; the last one is cut.
Load packed_load(const std::string& name, const std::string& path, int64_t tokens) {
  Load load{base::text(name, "-", tokens), {}};
  int64_t left = tokens;
  for (const int64_t length : bench::read_lengths(path, 2, 131'072)) {
    if (left < 2) break;
    load.lengths.push_back(std::min(length, left));
    left -= load.lengths.back();
  }
  return load;
}

std::vector<Load> all_loads(const std::string& data, int64_t tokens) {
  std::vector<Load> loads;
  for (const int64_t length : {4096, 8192, 16'384, 32'768, 131'072}) {
    const int64_t count = std::max<int64_t>(1, tokens / length);
    loads.push_back(
        {base::text(count, "x", length), std::vector<int64_t>(static_cast<size_t>(count), length)});
  }
  loads.push_back(packed_load("wikipedia", data + "/wikipedia_lengths.txt", tokens));
  loads.push_back(packed_load("code", data + "/code_lengths.txt", tokens));
  return loads;
}

// Peak bandwidth of the GPU's memory in bytes per second, by its data sheet: two transfers per clock.
double memory_bandwidth() {
  int kilohertz = 0, bits = 0;
  cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, kGpu.index());
  cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, kGpu.index());
  return 2.0 * kilohertz * 1e3 * bits / 8;
}

struct Times {
  double median_ms = 0;
  double spread_ms = 0;  // between the quartiles
};

// GPU times of `repetitions` calls of `work` on the current stream, one after the other.
std::vector<double> turns_ms(const std::function<void()>& work, int repetitions) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  std::vector<cudaEvent_t> events(static_cast<size_t>(repetitions) + 1);
  for (cudaEvent_t& event : events) cudaEventCreate(&event);
  cudaEventRecord(events.front(), stream);
  for (size_t i = 1; i < events.size(); ++i) {
    work();
    cudaEventRecord(events[i], stream);
  }
  cudaEventSynchronize(events.back());
  std::vector<double> times;
  for (size_t i = 1; i < events.size(); ++i) {
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, events[i - 1], events[i]);
    times.push_back(milliseconds);
  }
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  return times;
}

Times time(const std::function<void()>& work) {
  work();  // warms up allocator and libraries
  const double once_ms = turns_ms(work, 1).front();
  const int repetitions = static_cast<int>(kBudgetMs / std::max(1e-3, once_ms));
  std::vector<double> times = turns_ms(work, std::clamp(repetitions, kLeastRepetitions, kMostRepetitions));
  std::ranges::sort(times);
  return {times[times.size() / 2], times[times.size() * 3 / 4] - times[times.size() / 4]};
}

// A model's layers on one load, and the timing of their parts.
class LayerBench {
 public:
  LayerBench(std::string model, const model::Outline& outline, const Load& load)
      : model_(std::move(model)),
        outline_(outline),
        load_(load),
        table_(model::parameter_table(outline)),
        context_(layers::layer_context(outline, {}, *std::ranges::max_element(load.lengths), kNarrow)),
        layout_(layers::row_layout(pieces(), 1, kGpu)) {
    for (const model::Bucket& bucket : table_.buckets) {
      flats_.push_back(at::randn({bucket.size}, kNarrow) * 0.02);
      sums_.push_back(at::zeros({bucket.size}, kNarrow.dtype(at::kFloat)));
    }
    const auto of = [](const std::vector<at::Tensor>& flats) {
      return [&flats](int bucket) { return flats[static_cast<size_t>(bucket)]; };
    };
    for (int64_t position = 0; position < table_.program.size(); ++position) {
      operations_.push_back(layers::make_operation(context_, table_, position, of(flats_), of(sums_)));
    }
    std::vector<int64_t> rows(static_cast<size_t>(load.tokens()), 1);
    targets_ = layers::targets(rows, {}, kGpu);
  }

  void run() {
    ops::reset_peak_tensor_bytes(kGpu);
    const base::Interval blocks = table_.program.blocks();
    std::vector<layers::StatePtr> saved(static_cast<size_t>(blocks.end));
    const at::Tensor x = random(outline_.hidden), dy = random(outline_.hidden) * 1e-3;
    const double forward = layers() * forward_flops();
    layers::Flow flow;
    flow.layout = layout_;
    const auto all_forward = [&] {
      flow.activation_SH = x;
      for (int64_t i = blocks.begin; i < blocks.end; ++i) {
        saved[static_cast<size_t>(i)] = block(i).forward(flow, layers::Purpose::kTrain);
      }
    };
    const auto all_backward = [&] {
      flow.gradient_SH = dy;
      for (int64_t i = blocks.end; i-- > blocks.begin;) {
        block(i).backward(flow, std::move(saved[static_cast<size_t>(i)]));
      }
    };
    print("layers forward", forward, 0, time(all_forward));
    print("layers step", 3 * forward, 0, time([&] {
            all_forward();
            all_backward();
          }),
          ops::peak_tensor_bytes(kGpu));
    saved.clear();
    run_parts();
    const double head = 2.0 * tokens() * hidden() * static_cast<double>(outline_.vocab);
    const auto head_weights = layers::head_parameters(weights_of(table_.program.head()));
    const auto head_sums = layers::head_parameters(gradients_of(table_.program.head()));
    print("head step", 3 * head, 0,
          time([&] { layers::head_forward_backward(context_, head_weights, x, targets_, head_sums); }));
  }

 private:
  std::vector<layers::PieceSpan> pieces() const {
    std::vector<layers::PieceSpan> spans;
    for (const int64_t length : load_.lengths) spans.push_back({length});
    return spans;
  }
  at::Tensor random(int64_t width) const { return at::randn({load_.tokens(), width}, kNarrow); }
  const layers::Operation& block(int64_t position) const {
    return *operations_[static_cast<size_t>(position)];
  }

  double tokens() const { return static_cast<double>(load_.tokens()); }
  double layers() const { return static_cast<double>(outline_.layers); }
  double hidden() const { return static_cast<double>(outline_.hidden); }
  double queries() const { return static_cast<double>(outline_.q_width()); }
  double keys() const { return static_cast<double>(outline_.kv_width()); }
  double ffn() const { return static_cast<double>(outline_.ffn_hidden); }
  double attention_flops() const { return 4 * queries() * load_.causal_pairs(); }
  double product_flops() const {
    return 2 * tokens() * (hidden() * (queries() + 2 * keys()) + queries() * hidden() + 3 * hidden() * ffn());
  }
  double forward_flops() const { return product_flops() + attention_flops(); }

  // `bytes`: the part must move at least so many.
  void print(const std::string& part, double flops, double bytes, Times times, int64_t peak_bytes = 0) const {
    base::Json line{{"system", "sluice"},
                    {"model", model_},
                    {"layers", outline_.layers},
                    {"load", load_.name},
                    {"sequences", load_.lengths.size()},
                    {"tokens", load_.tokens()},
                    {"part", part},
                    {"ms", times.median_ms},
                    {"spread_ms", times.spread_ms}};
    if (flops > 0) line["causal_mfu"] = flops / (times.median_ms * 1e-3) / kPeakFlops;
    if (bytes > 0) {
      const double bytes_per_s = bytes / (times.median_ms * 1e-3);
      line["gbytes_per_s"] = bytes_per_s / 1e9;
      line["share_of_bandwidth"] = bytes_per_s / memory_bandwidth();
    }
    if (peak_bytes > 0) line["peak_bytes"] = peak_bytes;
    std::cout << line.dump() << std::endl;
  }

  void run_parts() {
    run_norms();
    run_mlp();
    run_attention();
    run_ends();
    run_update();
    run_link();
  }

  void run_norms() {
    const at::Tensor x = random(outline_.hidden), dy = random(outline_.hidden),
                     weight = at::randn({outline_.hidden}, kNarrow);
    const at::Tensor sum = at::zeros({outline_.hidden}, kNarrow.dtype(at::kFloat));
    const double matrix = 2 * tokens() * hidden();
    const ops::RmsNorm norm = ops::rms_norm(x, weight, 1e-5);
    print("norm forward", 0, 2 * matrix, time([&] { ops::rms_norm(x, weight, 1e-5); }));
    print("norm backward", 0, 5 * matrix,
          time([&] { ops::rms_norm_backward(dy, x, weight, norm.inverse_rms_T, dy, sum); }));
  }

  layers::OperationShards weights_of(int64_t position) const {
    const auto flat = [this](int bucket) { return flats_[static_cast<size_t>(bucket)]; };
    return {table_, position, flat, layers::OperationShards::Of::kWeights, {}};
  }
  layers::OperationShards gradients_of(int64_t position) const {
    const auto flat = [this](int bucket) { return sums_[static_cast<size_t>(bucket)]; };
    return {table_, position, flat, layers::OperationShards::Of::kGradients, {}};
  }

  void run_mlp() {
    const at::Tensor x = random(outline_.hidden), gate_up = random(2 * outline_.ffn_hidden);
    const at::Tensor a = random(outline_.ffn_hidden);
    const int64_t first = table_.program.blocks().begin;
    const at::Tensor w = weights_of(first).tensor(model::roles::kGateUp);
    const at::Tensor g = gradients_of(first).tensor(model::roles::kGateUp);
    const double matrix = 2 * tokens() * ffn(), product = 2 * tokens() * hidden() * 2 * ffn();
    print("swiglu forward", 0, 3 * matrix, time([&] { ops::gated_activation({}, gate_up); }));
    print("swiglu backward", 0, 6 * matrix, time([&] { ops::gated_activation_backward({}, a, gate_up); }));
    print("product forward", product, 0, time([&] { ops::times_transposed(x, w); }));
    print("product input gradient", product, 0, time([&] { ops::times(gate_up, w); }));
    print("product weight gradient", product, 0,
          time([&] { ops::accumulate_weight_gradient(g, gate_up, x); }));
  }

  void run_attention() {
    const int64_t heads = outline_.heads, kv_heads = outline_.kv_heads, d = outline_.head_dim;
    const at::Tensor qkv = random((heads + 2 * kv_heads) * d).view({load_.tokens(), heads + 2 * kv_heads, d});
    const at::Tensor dqkv = at::empty(qkv.sizes(), kNarrow);
    const auto split = [&](const at::Tensor& all) {
      return ops::AttentionInput{.q_TND = all.narrow(1, 0, heads),
                                 .k_TKD = all.narrow(1, heads, kv_heads),
                                 .v_TKD = all.narrow(1, heads + kv_heads, kv_heads),
                                 .scale = 1.0 / std::sqrt(static_cast<double>(d))};
    };
    const ops::AttentionInput input = split(qkv), parts = split(dqkv);
    const ops::AttentionResult result = ops::attention(input, layout_.attended.sequences);
    const at::Tensor dout = random(heads * d).view({load_.tokens(), heads, d});
    print("attention forward", attention_flops(), 0,
          time([&] { ops::attention(input, layout_.attended.sequences); }));
    print("attention backward", 2 * attention_flops(), 0, time([&] {
            ops::attention_backward(dout, input, result, layout_.attended.sequences,
                                    {parts.q_TND, parts.k_TKD, parts.v_TKD});
          }));
    const at::Tensor rotating = qkv.narrow(1, 0, heads + kv_heads);
    const ops::RotaryTable& rotary = *context_.rotary->find(outline_.rope, outline_.rotated_width());
    print("rotary", 0, 4 * tokens() * (queries() + keys()),
          time([&] { ops::rotate(rotating, rotary, layout_.position_T, ops::Rotation::kForward); }));
  }

  // The model's ends, beside products of embedding and head; logits for as many rows as a chunk of 1 GiB has.
  void run_ends() {
    const at::Tensor table = at::randn({outline_.vocab, outline_.hidden}, kNarrow),
                     dx = random(outline_.hidden);
    const at::Tensor sum = at::zeros(table.sizes(), kNarrow.dtype(at::kFloat));
    const at::Tensor ids = at::randint(outline_.vocab, {load_.tokens()}, kNarrow.dtype(at::kLong));
    const double matrix = 2 * tokens() * hidden();
    print("embedding", 0, 2 * matrix, time([&] { ops::embedding_lookup(table, ids, 0); }));
    const double touched = 8 * hidden() * std::min(tokens(), static_cast<double>(outline_.vocab));
    print("embedding gradient", 0, matrix + touched,
          time([&] { ops::embedding_lookup_backward(dx, ids, 0, sum); }));
    const int64_t rows = (int64_t{1} << 30) / (2 * outline_.vocab);
    const at::Tensor logits = at::randn({rows, outline_.vocab}, kNarrow);
    const at::Tensor targets = at::randint(outline_.vocab, {rows}, kNarrow.dtype(at::kLong));
    const at::Tensor statistics = ops::row_statistics(logits, targets, 0);
    const auto bytes = static_cast<double>(logits.nbytes());
    print("softmax statistics", 0, bytes, time([&] { ops::row_statistics(logits, targets, 0); }));
    print("logits gradient", 0, 2 * bytes, time([&] {
            ops::cross_entropy_gradient(logits, statistics, statistics, targets, 0, at::kBFloat16);
          }));
  }

  // Copies and sums of slices in a transfer, over 1 GiB in pieces of one job each.
  void run_link() {
    constexpr int64_t kBytes = int64_t{1} << 30, kTerms = 4, kJobs = kBytes / runtime::kJobBytes;
    constexpr int64_t kJobElements = runtime::kJobBytes / 4;
    const at::Tensor terms = at::zeros({kTerms, kBytes / 4}, kNarrow.dtype(at::kFloat));
    auto* first = terms.mutable_data_ptr<float>();
    std::vector<runtime::CopyJob> copies;
    std::vector<runtime::SumJob> sums;
    std::vector<const float*> sources;
    for (int64_t term = 0; term < kTerms; ++term) sources.push_back(first + term * kBytes / 4);
    for (int64_t job = 0; job < kJobs; ++job) {
      float* piece = first + job * kJobElements;
      copies.push_back({piece, piece + kBytes / 4, runtime::kJobBytes});
      sums.push_back({piece, kJobElements, job * kJobElements, 0, static_cast<int32_t>(kTerms)});
    }
    const at::Tensor copies_there = uploaded(copies), sums_there = uploaded(sums),
                     sources_there = uploaded(sources);
    const auto stream = [] { return c10::cuda::getCurrentCUDAStream().stream(); };
    print("link copies", 0, 2.0 * kBytes, time([&] {
            runtime::launch_copies(static_cast<const runtime::CopyJob*>(copies_there.const_data_ptr()), kJobs,
                                   stream());
          }));
    print("link sums", 0, (kTerms + 1.0) * kBytes, time([&] {
            runtime::launch_sums(static_cast<const runtime::SumJob*>(sums_there.const_data_ptr()), kJobs,
                                 static_cast<const float* const*>(sources_there.const_data_ptr()), stream());
          }));
  }
  template <typename Job>
  static at::Tensor uploaded(const std::vector<Job>& jobs) {
    const at::Tensor there =
        at::empty({static_cast<int64_t>(jobs.size() * sizeof(Job))}, kNarrow.dtype(at::kByte));
    cudaMemcpy(there.mutable_data_ptr(), jobs.data(), jobs.size() * sizeof(Job), cudaMemcpyHostToDevice);
    return there;
  }

  // The optimiser, on as many parameters as a rank owns of 8B parameters over 64 ranks.
  void run_update() {
    constexpr int64_t kParameters = 125'000'000;
    std::vector<at::Tensor> of(4);
    for (at::Tensor& each : of) each = at::zeros({kParameters}, kNarrow.dtype(at::kFloat));
    const at::Tensor copy = at::zeros({kParameters}, kNarrow);
    const runtime::AdamWRun run{.master = of[0].mutable_data_ptr<float>(),
                                .gradient = of[1].const_data_ptr<float>(),
                                .exp_avg = of[2].mutable_data_ptr<float>(),
                                .exp_avg_sq = of[3].mutable_data_ptr<float>(),
                                .copy = static_cast<uint16_t*>(copy.mutable_data_ptr()),
                                .elements = kParameters,
                                .step_size = 1e-3F};
    const runtime::AdamWStep step{.beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F};
    print("adamw", 0, 30.0 * kParameters, time([&] {
            runtime::launch_adamw({&run, 1}, step, c10::cuda::getCurrentCUDAStream().stream());
          }));
  }

  std::string model_;
  model::Outline outline_;
  Load load_;
  model::ParameterTable table_;
  layers::LayerContext context_;
  layers::RowLayout layout_;
  std::vector<at::Tensor> flats_, sums_;                        // by bucket
  std::vector<std::unique_ptr<layers::Operation>> operations_;  // by position
  layers::Targets targets_;
};

// Compares our kernels' operations with ATen's in FP64 on the CPU.
bool answers_are_right() {
  const auto close = [](const at::Tensor& actual, const at::Tensor& expected) {
    const at::Tensor wide = actual.cpu().to(at::kDouble);
    return (wide - expected).abs().max().item<double>() <= expected.abs().max().item<double>() / 128;
  };
  const at::Tensor gate_up = at::randn({64, 512}, kNarrow), x = at::randn({64, 4096}, kNarrow);
  const at::Tensor weight = at::randn({4096}, kNarrow);
  return close(ops::gated_activation({}, gate_up),
               ops::aten::gated_activation({}, gate_up.cpu().to(at::kDouble))) &&
         close(ops::rms_norm(x, weight, 1e-5).y_TH,
               ops::aten::rms_norm(x.cpu().to(at::kDouble), weight.cpu().to(at::kDouble), 1e-5).y_TH);
}

std::map<std::string, std::string> options_of(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--layers", "4"}, {"--tokens", "16384"}, {"--data", "bench/data"}, {"--only", ""}, {"--model", ""}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  return options;
}

int run(int argc, char** argv) {
  if (ops::gpu_count() == 0) {
    std::fprintf(stderr, "device_layers_bench: no GPU: nothing is measured\n");
    return EXIT_SUCCESS;
  }
  ops::prepare_device(kGpu);
  if (!answers_are_right()) {
    std::fprintf(stderr, "device_layers_bench: kernels give wrong results\n");
    return EXIT_FAILURE;
  }
  auto options = options_of(argc, argv);
  const int64_t layers = std::stoll(options["--layers"]);
  const std::vector<std::pair<std::string, model::Outline>> models{{"8b",
                                                                    {.layers = layers,
                                                                     .hidden = 4096,
                                                                     .heads = 32,
                                                                     .kv_heads = 8,
                                                                     .head_dim = 128,
                                                                     .ffn_hidden = 14'336,
                                                                     .vocab = 32'768}},
                                                                   {"7b",
                                                                    {.layers = layers,
                                                                     .hidden = 4096,
                                                                     .heads = 32,
                                                                     .kv_heads = 32,
                                                                     .head_dim = 128,
                                                                     .ffn_hidden = 11'008,
                                                                     .vocab = 32'768}}};
  for (const auto& [name, outline] : models) {
    if (!options["--model"].empty() && options["--model"] != name) continue;
    for (const Load& load : all_loads(options["--data"], std::stoll(options["--tokens"]))) {
      if (options["--only"].empty() || options["--only"] == load.name) LayerBench(name, outline, load).run();
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::run(argc, argv); }

#else

int main() {
  std::fprintf(stderr, "device_layers_bench: built without CUDA: nothing is measured\n");
  return EXIT_SUCCESS;
}

#endif

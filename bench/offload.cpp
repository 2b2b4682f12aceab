// Savings and costs of memory policies on one rank of this machine: peak bytes and step time of eight layers
// on 4,096 tokens, in sequences of 512. Losses are compared first.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "runtime/test_cluster.h"

namespace sluice {
namespace {

strategy::StepPlan eight_sequences(int64_t step, const std::vector<strategy::Sequence>&,
                                   const strategy::Strategy& strategy, int64_t max_tokens) {
  std::vector<strategy::Sequence> sequences;
  for (int64_t i = 0; i < 8; ++i) sequences.push_back({step * 8 + i, 0, 512});
  return runtime::dealt_plan(step, sequences, strategy, max_tokens);
}

int64_t median(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int run() {
  runtime::RunOptions options;
  options.model = {
      .layers = 8, .hidden = 256, .heads = 4, .kv_heads = 4, .head_dim = 64, .ffn_hidden = 688, .vocab = 512};
  options.plan = eight_sequences;
  options.dtype = comm::DType::kFloat32;
  options.max_tokens = 4096;
  options.steps = 5;
  runtime::RunRecord kept;
  std::printf("| policy | device MiB | saved | host MiB | step ms | added |\n|---|---|---|---|---|---|\n");
  for (const strategy::MemoryPolicy& policy : {strategy::MemoryPolicy{},
                                               {.offload_permille = 500},
                                               {.offload_permille = 800},
                                               {.offload_permille = 1000},
                                               {.recompute_permille = 1000},
                                               {.recompute_permille = 1000, .offload_permille = 1000}}) {
    options.policies = {policy};
    const runtime::RunRecord record = runtime::run_in_process(options);
    if (kept.losses.empty()) kept = record;
    if (record.losses != kept.losses) {
      std::fprintf(stderr, "'%s' trains otherwise\n", to_text(policy).c_str());
      return EXIT_FAILURE;
    }
    const auto share = [](int64_t now, int64_t before) {
      return 100.0 * static_cast<double>(now - before) / static_cast<double>(before);
    };
    const int64_t peak = record.peak_bytes[0][0], step_ns = median(record.step_ns);
    std::printf("| %s | %.1f | %.1f %% | %.1f | %.0f | %.1f %% |\n", to_text(policy).c_str(),
                static_cast<double>(peak) / (1 << 20), -share(peak, kept.peak_bytes[0][0]),
                static_cast<double>(record.host_peak_bytes[0][0]) / (1 << 20),
                static_cast<double>(step_ns) / 1e6, share(step_ns, median(kept.step_ns)));
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace sluice

int main() { return sluice::run(); }

// The time of a long prompt on a node of GPUs, by costs alone, as a table in Markdown: one GPU, lanes that
// divide its KV cache, and TP. The table is written by bench/record.py long_prompts.
//
//   long_prompts_bench [MODEL …]
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "inference/engine_step_clock.h"
#include "inference/layouts.h"
#include "session/planning_inputs.h"

namespace {

using namespace sluice;

constexpr int kGpus = 8;
constexpr int64_t kPrompts[] = {8192, 32'768, 131'072};

void print_model(const std::string& model) {
  session::PlanningOptions options{.gpus = kGpus, .cluster = "h100x8", .model = model};
  const cost::CostModel cost = session::resolve_machine(options).cost();
  for (const char* name : {"<1,1,1>", "<1,1,2>", "<1,1,4>", "<1,1,8>", "<2,1,4>", "<8,1,1>"}) {
    const strategy::Scheme scheme = strategy::parse_scheme(name);
    const double left = static_cast<double>(cost.options().memory.device_bytes) -
                        static_cast<double>(inference::parameter_bytes(cost, scheme));
    const inference::KvCacheBudget room{.cache_bytes = left, .max_num_seqs = 1};
    const inference::ModelSharding cut{cost.program(), scheme.tp, scheme.pp,
                                       cost.options().memory.element_bytes, scheme.cp};
    const int64_t held = inference::kv_blocks_in(cut, left, 1) * inference::kKvBlockTokens;
    std::printf("| %s | %s | %s |", model.c_str(), name, base::human_count(held).c_str());
    for (const int64_t prompt : kPrompts) {
      if (held <= prompt) {
        std::printf(" – | – |");
        continue;
      }
      const std::vector<inference::RequestLengths> load = {
          {.prompt = prompt, .max_tokens = 1, .output_lens = {1}}};
      const inference::EngineSteps engine_steps = inference::engine_steps_of(
          load, inference::scheduler_options(cut, room, 1, prompt + 1), cost.window());
      inference::EngineStepClock clock(cost, scheme, /*level=*/0);
      for (const cost::DecodeWork& work : engine_steps.work) clock.add(work);
      const int64_t prefill_ns = clock.ns();
      cost::DecodeWork next;
      next.add(prompt, prompt + 1, /*says=*/true, cost.window());
      clock.add(next);
      std::printf(" %.2f | %.1f |", static_cast<double>(prefill_ns) / 1e9,
                  static_cast<double>(clock.ns() - prefill_ns) / 1e6);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> models(words + 1, words + count);
  if (models.empty()) models = {"llama-7b", "llama-32b"};
  std::printf(
      "One text on %d H100s of a node; all of a GPU's memory beside its parameters is cache.\n\n| model | "
      "ranks | longest text |",
      kGpus);
  for (const int64_t prompt : kPrompts)
    std::printf(" %sK prompt, s | a token, ms |", base::human_count(prompt / 1024).c_str());
  std::printf("\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const std::string& model : models) print_model(model);
}

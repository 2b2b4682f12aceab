// The rivals in the configurations of Hydraulis' Table 3 (data/published/evaluation.csv).
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "published/static_strategy.h"
#include "study/deepspeed.h"
#include "study/hotspa.h"
#include "study/megatron.h"
#include "study/rival_traits.h"

namespace sluice::bench {

// One column of the table. Systems: "megatron", "deepspeed", "hotspa".
struct Table3 {
  std::string model;  // "7b", "13b", "32b"
  int gpus = 0;
  int64_t context = 0;  // tokens

  // Packs as long as the context (HotSPa: as its interval) divided by `pack_divisor`, dealt round robin.
  // InputError if the table has no such configuration.
  std::unique_ptr<study::System> make(const std::string& system, const study::SystemInputs& inputs,
                                      int pack_divisor = 1) const {
    if (system == "megatron") {
      const int64_t tokens = context / pack_divisor;
      return study::make_megatron(inputs, choice_of(text_of("Megatron-LM"), tokens));
    }
    if (system == "hotspa") return make_hotspa(inputs, pack_divisor);
    const std::string chosen = text_of("DeepSpeed");
    const int ranks = std::stoi(chosen.substr(chosen.find("SP") + 2));
    return study::make_deepspeed(inputs, ranks, chosen.ends_with("AC"), context / pack_divisor);
  }

  // Packs of that length or a half, quarter or eighth of it, whichever is fastest on the sample batches.
  std::unique_ptr<study::System> make_with_best_packs(const std::string& system,
                                                      const study::SystemInputs& inputs) const {
    std::unique_ptr<study::System> best;
    int64_t least_ns = std::numeric_limits<int64_t>::max();
    for (const int divisor : {1, 2, 4, 8}) {
      std::unique_ptr<study::System> next = make(system, inputs, divisor);
      int64_t total_ns = 0;
      for (const std::vector<int64_t>& batch : inputs.sample_batches) {
        std::vector<strategy::Sequence> sequences;
        for (const int64_t length : batch) sequences.push_back({.length_tokens = length});
        const study::SystemStep step = next->step(0, sequences);
        total_ns += step.before_ns + step.plan.estimated_ns;
      }
      if (total_ns >= least_ns) continue;
      least_ns = total_ns;
      best = std::move(next);
    }
    return best;
  }

 private:
  std::string text_of(const std::string& title) const {
    std::ifstream file("data/published/evaluation.csv");
    std::string upper = model;
    std::ranges::transform(upper, upper.begin(), [](char c) { return c == 'b' ? 'B' : c; });
    const std::string start = base::text("Table 3,LLaMA ", upper, " ", gpus, " GPUs ",
                                         context == 16384 ? "F1" : "F2&F3", ",", title, ",");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(start)) return line.substr(start.size(), line.rfind(',') - start.size());
    }
    throw base::InputError(base::text("data/published/evaluation.csv has no line '", start, "…'"));
  }

  // "DP4TP8CP2".
  published::StaticStrategy choice_of(const std::string& text, int64_t pack_tokens) const {
    const auto degree = [&](const char* name) {
      const size_t at = text.find(name);
      return at == std::string::npos ? 1 : std::stoi(text.substr(at + 2));
    };
    const strategy::Scheme scheme = {.tp = degree("TP"), .pp = degree("PP"), .cp = degree("CP")};
    return {.scheme = scheme,
            .pipelines = gpus / scheme.ranks(),
            .micro_batch_tokens = pack_tokens / scheme.cp,
            .dealing = published::Dealing::kTurns};
  }

  std::unique_ptr<study::System> make_hotspa(const study::SystemInputs& inputs, int pack_divisor) const {
    const std::string all = text_of("HotSPa");
    std::vector<study::HotSpaPhase> phases;
    for (size_t begin = 0; begin < all.size(); begin = std::min(all.find('|', begin), all.size() - 1) + 1) {
      phases.push_back({0, choice_of(all.substr(begin, all.find('|', begin) - begin), 0)});
    }
    // The table lists 7B's F2 on 8 GPUs in another order; the phase with the most room comes first.
    std::ranges::stable_sort(phases, [&](const auto& a, const auto& b) {
      return cost::MemoryCost(inputs.cost, a.choice.scheme).max_len_tokens(gpus) >
             cost::MemoryCost(inputs.cost, b.choice.scheme).max_len_tokens(gpus);
    });
    const std::vector<int64_t> ends = {context, phases.size() == 3 ? 16384 : 4096, 4096};
    for (size_t p = 0; p < phases.size(); ++p) {
      phases[p].longest = ends[p];
      phases[p].choice.micro_batch_tokens = ends[p] / pack_divisor;
    }
    return study::make_hotspa(inputs, phases);
  }
};

}  // namespace sluice::bench

#include "inference/serving.h"

#include <algorithm>
#include <functional>

#include "inference/engine_step_clock.h"

namespace sluice::inference {

cost::DecodeWork steady_work(const Demand& demand, int64_t sequences, int64_t window) {
  cost::DecodeWork one{.engine_steps = demand.output_len};
  one.add_one_each(demand.input_len, window);
  cost::DecodeWork prompts;
  if (!demand.disaggregated_prefill && demand.input_len > 0)
    prompts.add(0, demand.input_len, /*says=*/false, window);
  cost::DecodeWork work{.engine_steps = demand.output_len,
                        .sequences = sequences,
                        .rows = sequences,
                        .sampled_rows = sequences};
  work.rows += (sequences * prompts.rows + demand.output_len - 1) / demand.output_len;
  const auto times = [&](const cost::DecodeWork::AttentionWork& decodes,
                         const cost::DecodeWork::AttentionWork& prefill) {
    return cost::DecodeWork::AttentionWork{.keys = sequences * (decodes.keys + prefill.keys),
                                           .chunk_keys = sequences * prefill.chunk_keys,
                                           .pairs = sequences * prefill.pairs};
  };
  work.all = times(one.all, prompts.all);
  work.windowed = times(one.windowed, prompts.windowed);
  return work;
}

std::vector<ServingLayout> serving_layouts(const cost::CostModel& cost, const Demand& demand,
                                           int world_size) {
  const cost::MemoryModel& memory = cost.options().memory;
  std::vector<ServingLayout> layouts;
  for (const strategy::Scheme& scheme : generation_schemes(cost, world_size, memory.device_bytes)) {
    const bool is_long = demand.input_len + demand.output_len >= kLongSequenceTokens;
    if (!cost.decodes(scheme) || (scheme.cp > 1 && !is_long)) continue;
    const ModelSharding cut{cost.program(), scheme.tp, scheme.pp, memory.element_bytes, scheme.cp};
    const int64_t parameters = parameter_bytes(cost, scheme);
    const auto bytes_of = [&](int64_t sequences) {
      int64_t fullest = 0;
      for (int stage = 0; stage < scheme.pp; ++stage) {
        const int64_t all = sequences * demand.sequence_bytes(cache_of(cut, stage));
        fullest = std::max(fullest, (all + scheme.cp - 1) / scheme.cp);
      }
      const int64_t rows = steady_work(demand, cost::divide_up(sequences, scheme.pp), 0).rows;
      return parameters + fullest + rows * memory.transient_bytes_per_token;
    };
    // Each stage computes an equal part of the sequences. A first round of engine steps fills the pipeline;
    // the second is timed.
    const auto engine_step_ns = [&](int64_t sequences) {
      EngineStepClock clock(cost, scheme, ranks_level(cost, scheme));
      int64_t filled_ns = 0;
      for (const bool fills : {true, false}) {
        for (int stage = 0; stage < scheme.pp; ++stage)
          clock.add(steady_work(demand, (sequences + stage) / scheme.pp, cost.window()));
        if (fills) filled_ns = clock.ns();
      }
      return (clock.ns() - filled_ns) / demand.output_len;
    };
    ServingLayout layout{.scheme = scheme, .pipelines = world_size / scheme.ranks()};
    layout.sequences = max_sequences([&](int64_t sequences) {
      return bytes_of(sequences) <= memory.device_bytes && engine_step_ns(sequences) <= demand.tpot_ns;
    });
    layout.engine_step_ns = engine_step_ns(std::max<int64_t>(1, layout.sequences));
    layout.bytes = bytes_of(std::max<int64_t>(1, layout.sequences));
    layouts.push_back(layout);
  }
  std::ranges::stable_sort(layouts, std::greater(), &ServingLayout::tokens_per_s);
  return layouts;
}

}  // namespace sluice::inference

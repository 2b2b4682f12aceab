#include "plan/mix.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::plan {

using strategy::Scheme;

std::vector<SchemeCost> usable_schemes(const cost::CostModel& cost, int world_size, int max_cp) {
  std::vector<SchemeCost> schemes;
  for (Scheme scheme : cost.schemes(world_size)) {
    for (const int lane_ranks = scheme.ranks(); scheme.cp <= max_cp && lane_ranks * scheme.cp <= world_size;
         scheme.cp *= 2) {
      SchemeCost known(scheme, cost, world_size);
      if (known.max_len_tokens() > 0) schemes.push_back(std::move(known));
    }
  }
  std::stable_sort(schemes.begin(), schemes.end(), [](const SchemeCost& a, const SchemeCost& b) {
    return std::pair(a.scheme().ranks(), a.scheme().tp) > std::pair(b.scheme().ranks(), b.scheme().tp);
  });
  return schemes;
}

void require_held(int64_t context_length, std::span<const SchemeCost> schemes, int world_size) {
  const std::string ranks = base::human_count(world_size, "rank", "ranks");
  if (schemes.empty()) {
    throw base::InfeasibleError(base::text("no scheme that the calibration knows holds the model on ", ranks,
                                           ": use more, or devices with more memory"));
  }
  int64_t longest = 0;
  for (const SchemeCost& scheme : schemes) longest = std::max(longest, scheme.max_len_tokens());
  if (longest >= context_length) return;
  throw base::InfeasibleError(
      base::text("no strategy on ", ranks, " holds context_length ", context_length,
                 ": the longest that fits is ", longest,
                 " tokens: lower context_length, use more ranks or devices with more memory, or allow more "
                 "lanes by max_cp"));
}

int ranks_of(const Mix& mix, std::span<const SchemeCost> schemes) {
  int ranks = 0;
  for (size_t k = 0; k < mix.size(); ++k) ranks += mix[k] * schemes[k].scheme().ranks();
  return ranks;
}

int64_t max_len_tokens(const Mix& mix, std::span<const SchemeCost> schemes) {
  int64_t longest = 0;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) longest = std::max(longest, schemes[k].max_len_tokens());
  }
  return longest;
}

strategy::Strategy strategy_of(const Mix& mix, std::span<const SchemeCost> schemes, int world_size) {
  std::vector<std::string> terms;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) terms.push_back(base::text(mix[k], "x", to_text(schemes[k].scheme())));
  }
  return strategy::parse_strategy(base::join(terms, " + "), world_size);
}

}  // namespace sluice::plan

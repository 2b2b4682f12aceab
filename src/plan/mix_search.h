// Mixes worth planning with: good ones by fluid estimates, of thousands.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "plan/fluid.h"

namespace sluice::plan {

// A mix and the sum of its estimates.
struct RatedMix {
  int64_t total_ns = 0;
  Mix mix;
  auto operator<=>(const RatedMix&) const = default;
};

class MixSearch {
 public:
  // What it is made from must outlive it.
  MixSearch(std::span<const SchemeCost> schemes, const FluidTimes& fluid, int ranks);

  // The best mixes found, at most `most`, best first: those that most lower the sum over batches of the least
  // time, where `best_ns` is each batch's least so far (FluidTimes::kNever: none). Every one holds
  // `least_max_len` tokens. Of all starting points the best `starts` are improved by moves until none helps:
  // pipelines of one scheme replaced by as many ranks of another, one at a time, in powers of two, and all.
  std::vector<RatedMix> find(std::span<const int64_t> best_ns, int64_t least_max_len, int starts,
                             size_t most);

 private:
  void add_rounded(const FluidTimes::Ideal& ideal);
  void add_start(Mix mix);
  // Fills ranks that are left with the largest pipelines that the mix has, then with any.
  void fill(Mix& mix) const;
  std::vector<Mix> neighbours(const Mix& mix) const;

  std::span<const SchemeCost> schemes_;
  const FluidTimes& fluid_;
  int ranks_;
  std::vector<size_t> useful_;  // schemes that moves and pairs look at
  std::set<Mix> starts_;
};

}  // namespace sluice::plan

// The search for mixes worth planning with: the best of thousands by fluid estimates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "plan/fluid.h"

namespace sluice::plan {

class MixSearch {
 public:
  // A lower bound on the time of steps beside their schedules under a mix.
  using MinStepOverhead = std::function<int64_t(const Mix&)>;

  // The arguments must outlive this.
  MixSearch(std::span<const SchemeCost> schemes, const FluidTimes& fluid, int ranks,
            const MinStepOverhead& least_beside_ns);

  // Useful mixes of a single scheme, ascending by estimate. But estimates
  // err in the same way on all mixes whose schemes differ only in lanes.
  // So the least and the widest mix of each likely kind come first.
  std::vector<Mix> uniform(size_t most);

  // Good mixes by estimates, with their schemes' least step overheads: those that most lower
  // the sum over batches of the least time. `best_ns` is each batch's least so far
  // (cost::kLongestNs: none). Every mix holds `least_max_len` tokens. Moves improve `from`
  // and the best `starts` starting points, each mainly of another scheme, until none helps.
  // A move replaces pipelines of one scheme by as many ranks of another: one, a power of
  // two, or all. Returns the starts, then the `most` best, which may be among the starts.
  std::vector<Mix> find(std::span<const int64_t> best_ns, int64_t least_max_len, std::span<const Mix> from,
                        size_t starts, size_t most);

 private:
  struct Estimate {
    int64_t least_ns = 0;
    bool is_exact = false;
  };
  int64_t estimate_ns(std::vector<Estimate>& known, size_t climb, const Mix& mix, int64_t limit_ns);
  // Exact if below `limit_ns`; otherwise at least `limit_ns`.
  int64_t total_ns(const Mix& mix, std::span<const int64_t> best_ns, int64_t limit_ns);
  // The ideal time of a batch of climb_batches_, or its best time so far if that is less.
  int64_t least_ns(size_t climb, std::span<const int64_t> best_ns) const {
    return std::min(ideal_ns_[climb], best_ns[climb_batches_[climb]]);
  }
  void add_rounded(const FluidTimes::Ideal& ideal);
  void add_start(Mix mix);
  Mix all_of(size_t scheme) const;  // as many pipelines of the scheme as there are ranks for
  // The largest step overhead of the mix's schemes, above the least that a useful scheme has.
  int64_t beside_ns(const Mix& mix) const;
  size_t main_scheme(const Mix& mix) const;
  std::vector<Mix> neighbours(const Mix& mix) const;

  std::span<const SchemeCost> schemes_;
  const FluidTimes& fluid_;
  int ranks_;
  std::vector<size_t> useful_;  // schemes that moves and pairs look at
  std::vector<int64_t>
      beside_ns_;  // by scheme: all_of()'s least step overhead, above the least of useful ones
  std::set<Mix> starts_;
  std::vector<size_t> climb_batches_;               // the batches that judge moves
  std::vector<int64_t> ideal_ns_;                   // for each of climb_batches_, with all schemes
  std::map<Mix, std::vector<Estimate>> estimates_;  // by batch
};

}  // namespace sluice::plan

// Mixes worth planning with: good ones by fluid estimates, of thousands.
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
  // What steps take at least beside their schedules under a mix.
  using MinStepOverhead = std::function<int64_t(const Mix&)>;

  // What it is made from must outlive it.
  MixSearch(std::span<const SchemeCost> schemes, const FluidTimes& fluid, int ranks,
            const MinStepOverhead& least_beside_ns);

  // Mixes of one scheme each, of those that pay, the least first by their estimates. But estimates are wrong
  // about all lanes of one kind in the same way: first come, of each kind that is likely to be good, the
  // least and the widest.
  std::vector<Mix> uniform(size_t most);

  // Good mixes, as far as estimates and what their schemes alone would have beside schedules say: those that
  // most lower the sum over batches of the least time, where `best_ns` is each batch's least so far
  // (FluidTimes::kNever: none). Every one holds `least_max_len` tokens. `from` and the best `starts` of all
  // starting points, each mostly of another scheme, are improved by moves until none helps: pipelines of one
  // scheme replaced by as many ranks of another, one at a time, in powers of two, and all. Returns what was
  // started from, then the `most` best, which may be among it.
  std::vector<Mix> find(std::span<const int64_t> best_ns, int64_t least_max_len, std::span<const Mix> from,
                        size_t starts, size_t most);

 private:
  struct Estimate {
    int64_t least_ns = 0;
    bool is_exact = false;
  };
  int64_t estimate_ns(std::vector<Estimate>& known, size_t climb, const Mix& mix, int64_t limit_ns);
  // At least `limit_ns` where it is not less.
  int64_t total_ns(const Mix& mix, std::span<const int64_t> best_ns, int64_t limit_ns);
  // The ideal time of one of climb_batches_, or its best.
  int64_t least_ns(size_t climb, std::span<const int64_t> best_ns) const {
    return std::min(ideal_ns_[climb], best_ns[climb_batches_[climb]]);
  }
  void add_rounded(const FluidTimes::Ideal& ideal);
  void add_start(Mix mix);
  Mix all_of(size_t scheme) const;  // as many pipelines as there are ranks for
  // The most that one of its schemes has beside schedules, above the least that any has.
  int64_t beside_ns(const Mix& mix) const;
  size_t main_scheme(const Mix& mix) const;
  std::vector<Mix> neighbours(const Mix& mix) const;

  std::span<const SchemeCost> schemes_;
  const FluidTimes& fluid_;
  int ranks_;
  std::vector<size_t> useful_;  // schemes that moves and pairs look at
  std::vector<int64_t>
      beside_ns_;  // of all_of() each scheme, at least, above what the least of useful ones has
  std::set<Mix> starts_;
  std::vector<size_t> climb_batches_;               // that moves are judged by
  std::vector<int64_t> ideal_ns_;                   // of these, with all schemes
  std::map<Mix, std::vector<Estimate>> estimates_;  // by batch
};

}  // namespace sluice::plan

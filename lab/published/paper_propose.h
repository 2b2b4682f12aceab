// The published proposal (Hydraulis, section 7): Eq. 4 with fractional numbers of GPUs and pipelines, rounded
// to all nearby strategies, for every longest length.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/mix.h"
#include "plan/planner_options.h"

namespace sluice::published {

// Eq. 4 over a grid of lengths. Numbers of GPUs and pipelines are counted in parts (tenths, as published).
class FractionalStrategies {
 public:
  // The figures of a scheme that Eq. 4 needs.
  struct Choice {
    int64_t ranks = 1;
    int reach = 0;                 // the last grid place that the scheme holds
    std::vector<int64_t> work_ns;  // total up to each place, ascending; [0] is 0
  };
  // Each choice has one more work figure than the grid has places after 0, at least up to its reach.
  // REQUIRES: a sum of work in parts, plus any time, is below 2^63 ns.
  FractionalStrategies(std::vector<Choice> choices, int places, int64_t parts = 10);

  // t[n][l], `n` in parts: the largest work ÷ d of an interval, rounded up, if an interval's sequences are on
  // d pipelines of one scheme. Nullopt: infinite. Eq. 4 minimizes a maximum: t[n][l] is the least T at which
  // n GPUs suffice. The fewest GPUs g that end all lengths up to l by T are
  //   g(l) = min over k, s < l of g(s) + N_k · ⌈work_k(s, l] ÷ T⌉, rounded up to parts.
  // A bisection over T replaces a table over n, d and l′. Exact below 2^20, else within a millionth.
  // `at_least` is a known lower bound. O(K · l² · log).
  std::optional<int64_t> time_ns(int64_t n, int place, int64_t at_least = 1) const;
  // S[n][l]: parts of pipelines by choice. REQUIRES: `time_ns` is time_ns(n, place).
  std::vector<int64_t> pipelines(int64_t time_ns, int place) const;

 private:
  std::vector<int64_t> fewest_parts(int64_t time_ns, int places) const;
  int64_t cost_parts(const Choice& choice, int from, int to, int64_t time_ns) const;

  std::vector<Choice> choices_;
  int places_;
  int64_t parts_;
  // Places after 0 with the length of some sequence. An interval from any other place costs no less than one
  // from the last of these places before it, and neither does everything before the interval.
  std::vector<int> starts_;
  std::vector<int64_t> least_work_ns_;  // by place that some choice holds: summed over ranks, at the cheapest
};

// All nearby integral solutions: each fraction is rounded up or down. Some pipeline that holds `longest` is
// kept, and others are lowered one after the other, the most numerous first, until `world_size` ranks
// suffice. Solutions are left out if another one has at least as many pipelines of every scheme. Fixed order.
std::vector<plan::Mix> nearby_mixes(std::span<const int64_t> pipeline_parts, int64_t parts,
                                    std::span<const plan::SchemeCost> schemes, int world_size,
                                    int64_t longest);

// The union over L <= context_length, in steps of 128 tokens or, beyond 32K, of a 256th of it. It is cut to
// max_strategies: the first one holds the context length, the others are most often the best by Eq. 2 on the
// sample batches. If those have more than 20M tokens, only as many are used. `frequency` and
// `mean_estimated_ns` are by Eq. 2, too. The proposal knows no lanes. Infeasible as plan::propose.
base::Feasible<std::vector<plan::Proposal>> paper_propose(const plan::PlannerOptions& options,
                                                          const cost::CostModel& cost);

}  // namespace sluice::published

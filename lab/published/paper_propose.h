// The published proposal (Hydraulis, section 7): Eq. 4 with fractional numbers of GPUs and pipelines, rounded
// to all nearby strategies, for every longest length.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/mix.h"
#include "plan/proposal.h"

namespace sluice::published {

// Eq. 4 over a grid of lengths. Numbers of GPUs and pipelines are counted in parts (tenths, as published).
class FractionalStrategies {
 public:
  // What Eq. 4 needs of a scheme.
  struct Choice {
    int64_t ranks = 1;
    int reach = 0;                 // the last place of the grid that it holds
    std::vector<int64_t> work_ns;  // of all sequences up to each place; [0] is 0, ascending
  };
  // `choices` have one more work than the grid has places after 0, at least up to their reach; the sum of a
  // work in parts and any time stays below 2^63 ns.
  FractionalStrategies(std::vector<Choice> choices, int places, int64_t parts = 10);

  // t[n][l], `n` in parts: with the sequences of each interval on d pipelines of one scheme, the longest of
  // the intervals' work ÷ d, rounded up. Nothing: infinite. Eq. 4 is a least maximum, so t[n][l] is the least
  // T for which the fewest GPUs that end all lengths up to l by T,
  //   g(l) = min over k, s < l of g(s) + N_k · ⌈work_k(s, l] ÷ T⌉, rounded up to parts,
  // are at most n: a bisection over T instead of a table over n, d and l′. Exact below 2^20, else within a
  // millionth. `at_least`: no less than that is known. O(K · l² · log).
  std::optional<int64_t> time_ns(int64_t n, int place, int64_t at_least = 1) const;
  // S[n][l]: parts of pipelines by choice. REQUIRES: time_ns(n, place) == time_ns.
  std::vector<int64_t> pipelines(int64_t time_ns, int place) const;

 private:
  std::vector<int64_t> fewest_parts(int64_t time_ns, int places) const;
  int64_t cost_parts(const Choice& choice, int from, int to, int64_t time_ns) const;

  std::vector<Choice> choices_;
  int places_;
  int64_t parts_;
  // Places after 0 that some sequence's length leads to. An interval that begins at another one costs no less
  // than from the last of these before it, and what is before it neither.
  std::vector<int> starts_;
  std::vector<int64_t> least_work_ns_;  // up to each place that some choice holds: of all ranks, the cheapest
};

// Every nearby whole solution: each fraction rounded up or down, some pipeline that holds `longest` kept, and
// no more than `world_size` ranks, for which others are lowered one after the other, the most numerous first.
// Those of which another has no fewer pipelines of any scheme are left out. In a fixed order.
std::vector<plan::Mix> nearby_mixes(std::span<const int64_t> pipeline_parts, int64_t parts,
                                    std::span<const plan::SchemeCost> schemes, int world_size,
                                    int64_t longest);

// The union over L <= context_length, in steps of 128 tokens or, beyond 32K, of a 256th of it. More than
// max_strategies: the first is one that holds the context length, the others are most often the best by Eq. 2
// over the sample batches, of more than 20M tokens in all as many as have those; `frequency` and
// `mean_estimated_ns` are by Eq. 2, too. Lanes are unknown to it. Infeasible as plan::propose.
base::Feasible<std::vector<plan::Proposal>> paper_propose(const plan::ProposalOptions& options,
                                                          const cost::CostModel& cost);

}  // namespace sluice::published

// Stage two of the published assignment: packing the sequences of one pipeline into micro-batches (Hydraulis,
// section 6.1 and appendix D).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"
#include "published/dispatch.h"
#include "published/partition.h"

namespace sluice::published {

// kBalanced: Eq. 1. kLongest: first-fit decreasing to the longest micro-batch, the start of Hydraulis' own
// ablation.
enum class PaperPackRule { kBalanced, kLongest };

struct PaperPackOptions {
  PaperPackRule rule = PaperPackRule::kBalanced;
  ConstantRule constants = ConstantRule::kPrinted;
  PartitionSolver solver = partition;
  int64_t tolerance_ppm = 100;    // a fullest micro-batch within this of the bound counts as the best
  int64_t node_budget = 200'000;  // per number of micro-batches
};

struct PaperPacking {
  std::vector<std::vector<int>> micro_batches;  // indices into the lengths; none is empty
  int64_t estimated_ns = 0;                     // Eq. 1: the longest micro-batch times (PP − 1 + V)
  bool proved = true;                           // within the tolerance of the best V and packing
};

// Appendix D: V from ΣL ÷ MaxLen, rounded up and at least 1, to the lesser of ΣL ÷ UtilLen, rounded down, and
// U; never below the first.
struct CountRange {
  int least = 1;
  int most = 1;
  bool operator==(const CountRange&) const = default;
};
CountRange micro_batch_range(std::span<const int64_t> lengths, const plan::SchemeCost& scheme);

// Solves Eq. 1 for every V in that range, with T and c by the rule of constants. The least estimate wins, of
// equals the fewest micro-batches. A V whose bound is no better than the best is skipped. If no V in the
// range fits, the first V above it that fits is used. A pure function of its inputs. With kLongest, Eq. 1
// only estimates. REQUIRES: every length <= scheme.max_len_tokens().
PaperPacking pack_by_paper(std::span<const int64_t> lengths, const plan::SchemeCost& scheme,
                           const PaperPackOptions& options);

}  // namespace sluice::published

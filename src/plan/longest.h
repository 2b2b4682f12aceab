// Whether the longest sequences of a batch, few enough to try all dispatches, can end by a given time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/floor_table.h"

namespace sluice::plan {

// Let X be the sequences that a pipeline runs, l the longest of them and C its credit. If it ends by T,
// whatever else it runs, three things hold.
//
// Busy: its busiest stage takes fill + Σ floor_j <= T.
//
// Turning: for every m in X, with L those of X that are no shorter than m (SchemeCost::turning_ns,
// passing_ns),
//     path_m − turning_m + Σ_{j in L} turning_j + Σ_{j not in L} passing_j <= T.
// The reason: before the last stage begins the first lane part that holds one of L, that lane
// part has passed the stages below, which takes no less than m does. Then the last stage runs
// the forward and input gradient of each of L; then the last of L returns, and its weight
// gradient runs on stage 0. Any other sequence delays this: injected before L by its forward
// on stage 0, injected after L by its input and weight gradient there, between them by its
// turn on the last stage. A sequence in the same lane part makes that lane part longer.
//
// Memory: a micro-batch holds its tokens of the credit for at least its path, so Σ l_j·path_j
// <= C·T. No two sequences longer than C/2 are in flight together, so their Σ path_j <= T.
//
// Turning and Memory are checked only with several stages and one lane.
class LongestSequences {
 public:
  static constexpr size_t kMost = 96;

  // `lengths` descend. All arguments must outlive this.
  LongestSequences(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                   const FloorTable& floors);

  // Whether no dispatch of the first `count` sequences ends by `end_ns` if group k takes only those
  // from first[k] on. The search is depth first over pipelines, equal ones once. Also false if a fixed
  // number of tries is not enough. REQUIRES: count <= kMost and count <= the number of sequences.
  bool exceed(int64_t end_ns, size_t count, std::span<const size_t> first);

 private:
  // A sequence's addition to a pipeline of a group, or the sum that a pipeline holds.
  struct Share {
    int64_t busy_ns = 0;
    int64_t passing_ns = 0;
    int64_t turning_ns = 0;  // beyond passing_ns
    // A sequence's: its path without its turn. A pipeline's: the
    // maximum of the turning condition over m, without passing_ns.
    int64_t turned_ns = 0;
    int64_t memory_ns = 0;
    int64_t alone_ns = 0;
    bool operator==(const Share&) const = default;
  };
  struct Pipeline {
    size_t group = 0;
    Share held;
    bool operator==(const Pipeline&) const = default;
  };

  bool place(size_t sequence);
  static Share with(const Share& held, const Share& share);
  bool in_time(const Share& held) const;

  std::vector<Share> shares_;  // by group, then sequence
  std::vector<Pipeline> pipelines_;
  size_t known_ = 0;  // the longest sequences, for which shares_ has entries
  // The state of one call of exceed():
  int64_t end_ns_ = 0;
  size_t count_ = 0;
  std::span<const size_t> first_;
  int tries_ = 0;
};

}  // namespace sluice::plan

// The least time that sequences take on the stages of a strategy's
// schemes, as a table for the frequent look-ups of bounds and dispatch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/never.h"
#include "plan/bubble.h"
#include "plan/scheme_cost.h"

namespace sluice::plan {

// Pipelines of a strategy that share a scheme.
struct SchemeGroup {
  const SchemeCost* scheme = nullptr;
  int pipelines = 0;
};

// Least time of every sequence on every group's busiest stage.
class FloorTable {
 public:
  // `lengths` descend.
  FloorTable(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups);

  size_t sequences() const { return sequences_; }
  size_t groups() const { return stage_.size(); }
  // base::kNever where the group's scheme does not hold the sequence.
  int64_t floor_ns(size_t sequence, size_t group) const { return floors_ns_[group * sequences_ + sequence]; }
  bool fits(size_t sequence, size_t group) const { return floor_ns(sequence, group) != base::kNever; }
  // The part of floor_ns that pays for constants, and the whole constant of the group's busiest stage.
  int64_t share_ns(size_t sequence, size_t group) const { return shares_ns_[group * sequences_ + sequence]; }
  // The part of the sequence's path through several stages of one lane beyond floor_ns; 0 elsewhere.
  int64_t path_beyond_ns(size_t sequence, size_t group) const {
    return path_beyond_ns_[group * sequences_ + sequence];
  }
  int64_t constant_ns(size_t group) const { return constant_ns_[group]; }
  // Tokens that a micro-batch holds, for pipelines with one stage and one lane:
  // they take nothing but their work and a constant per micro-batch. 0 elsewhere.
  int64_t batch_tokens(size_t group) const { return batch_tokens_[group]; }
  int64_t tokens(size_t sequence) const { return tokens_[sequence]; }
  // For the group's busiest stage.
  const Bubble& bubble(size_t group) const { return bubbles_[group]; }
  int stage(size_t group) const { return stage_[group]; }
  int64_t fill_ns(size_t group) const { return fill_ns_[group]; }
  // SchemeFloors::path_ns of the longest sequence; base::kNever where the scheme does not hold it.
  int64_t longest_path_ns(size_t group) const { return longest_path_ns_[group]; }

 private:
  size_t sequences_;
  std::vector<int64_t> floors_ns_;       // by group, then sequence
  std::vector<int64_t> shares_ns_;       // the same
  std::vector<int64_t> path_beyond_ns_;  // the same
  std::vector<int64_t> tokens_;          // by sequence
  std::vector<int64_t> constant_ns_, batch_tokens_;
  std::vector<Bubble> bubbles_;
  std::vector<int> stage_;        // by group: the stage that the bound looks at
  std::vector<int64_t> fill_ns_;  // the fill before that stage
  std::vector<int64_t> longest_path_ns_;
};

}  // namespace sluice::plan

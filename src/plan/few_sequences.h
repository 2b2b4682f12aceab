// Local search on the assignment of a small batch's sequences to pipelines, where estimates are least
// reliable.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "plan/pack.h"
#include "plan/place.h"

namespace sluice::plan {

int64_t last_end_ns(const std::vector<PackedPipeline>& packed);

// A packed assignment: plans and members of pipelines.
struct PackedAssignment {
  std::vector<PackedPipeline> pipelines;
  std::vector<std::vector<Place>> members;  // by pipeline, ascending
  int64_t end_ns() const { return last_end_ns(pipelines); }
};

class FewSequences {
 public:
  struct Options {
    std::function<const PackedPipeline&(size_t pipeline, const std::vector<Place>& members)> pack;
    std::function<bool(Place place, size_t pipeline)> fits;
    std::function<bool(Place, Place)> equal;  // whether two sequences are alike
  };
  explicit FewSequences(Options options) : options_(std::move(options)) {}

  // Moves a sequence off the pipeline that ends last, or exchanges one of its sequences for another
  // pipeline's, if both pipelines, packed again, end sooner; again and again, until that helps nowhere or the
  // assignment ends by goal_ns.
  void improve(PackedAssignment& packed, int64_t goal_ns) const;

 private:
  struct NewMembers {
    size_t pipeline = 0;
    std::vector<Place> members;
  };
  bool relocate_one(PackedAssignment& packed) const;
  bool exchange_two(PackedAssignment& packed) const;
  // Gives two pipelines these members if both then end before the last pipeline does now.
  bool take_if_sooner(PackedAssignment& packed, const std::array<NewMembers, 2>& changed) const;

  Options options_;
};

}  // namespace sluice::plan

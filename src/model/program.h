// The model program: the operations of one forward pass, the same under every strategy. The backward pass
// walks them in reverse. A stage computes a run of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/interval.h"
#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

struct Operation {
  int kind = 0;              // in Program::kinds()
  base::Interval own;        // the buckets of its own parameters
  std::vector<int> buckets;  // whose parameters it reads and whose gradients it writes, ascending
};

// What pull and push move as a unit: an operation's own parameters that are trained, or those that are not.
// An operation that has both has two buckets, the trained one first.
struct BucketPlace {
  int64_t position = 0;  // of the operation
  bool trained = true;
};

// Immutable and cheap to copy.
class Program {
 public:
  Program() = default;
  // REQUIRES: a valid shape.
  explicit Program(const Shape& shape);

  // The embedding's first, then those of blocks, the head's last.
  const std::vector<std::shared_ptr<const Kind>>& kinds() const { return body_->kinds; }
  int64_t size() const { return static_cast<int64_t>(body_->operations.size()); }
  const Operation& at(int64_t position) const { return body_->operations[static_cast<size_t>(position)]; }
  const Kind& kind_at(int64_t position) const { return *kinds()[static_cast<size_t>(at(position).kind)]; }

  // Positions of the ends, and of all blocks.
  int64_t embedding() const { return 0; }
  int64_t head() const { return size() - 1; }
  base::Interval blocks() const { return {1, head()}; }
  base::Interval blocks_in(base::Interval run) const { return base::intersect(run, blocks()); }
  // Whether all blocks are of one kind.
  bool uniform() const { return kinds().size() == 3; }

  // The run of a stage: blocks, the embedding on the first, the head on the last. Front to back each stage
  // takes blocks until it has its even part of the work that is left, so of alike blocks the first (blocks
  // mod stages) stages have one more. REQUIRES: 1 <= stages <= blocks.
  base::Interval of_stage(int stages, int stage) const;
  // Why TP cannot cut an operation, or "". REQUIRES: tp >= 1.
  std::string tp_fault(int tp) const;
  // The buckets of a run, ascending.
  std::vector<int> buckets_of(base::Interval run) const;
  const std::vector<BucketPlace>& buckets() const { return body_->buckets; }
  // Whether any of the parameters that an operation reads is trained.
  bool trains(int64_t position) const {
    return std::ranges::any_of(at(position).buckets, [&](int bucket) {
      return body_->buckets[static_cast<size_t>(bucket)].trained;
    });
  }

 private:
  struct Body {
    std::vector<std::shared_ptr<const Kind>> kinds;
    std::vector<Operation> operations;
    std::vector<BucketPlace> buckets;
    std::vector<int64_t> work_before;  // by position: of the blocks before it, relative to each other
  };
  std::shared_ptr<const Body> body_;
};

// The shape with no more than two blocks of each kind: what layers are measured on.
Shape short_shape(const Shape& shape);

// Why a pipeline of so many stages cannot cut this shape ("9 stages but the model has 8 layers"), or "".
std::string pp_fault(const Shape& shape, int pp);

}  // namespace sluice::model

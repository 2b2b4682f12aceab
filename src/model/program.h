// The model program: the operations of one forward pass, the same under every strategy. The backward pass
// walks them in reverse. A stage computes a run of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/interval.h"
#include "model/kind.h"
#include "model/shape.h"
#include "model/stage_cuts.h"

namespace sluice::model {

// By TP degree: what an operation of each of Program::kinds() takes, in any unit.
using KindTimes = std::map<int, std::vector<int64_t>>;

struct Operation {
  int kind = 0;              // in Program::kinds()
  base::Interval own;        // the buckets of its own parameters
  std::vector<int> buckets;  // whose parameters it reads and whose gradients it writes, ascending
};

// What pull and push move as a unit: an operation's own parameters that are held alike. An operation has a
// bucket for each way in which it has some, the trained ones first, of these those of no expert.
struct BucketPlace {
  int64_t position = 0;  // of the operation
  bool trained = true;
  bool of_experts = false;  // of each expert the same: lanes may divide them by experts
  bool coded = false;       // frozen ones in few bits (BaseFormat)

  bool has(const Parameter& parameter) const {
    return parameter.trained == trained && (parameter.experts > 0) == of_experts &&
           parameter.format.coded() == coded;
  }
};

// Immutable and cheap to copy.
class Program {
 public:
  Program() = default;
  // Stages are cut by `times`; under TP degrees that they do not name, by the multiply-adds of blocks, beside
  // which the ends count nothing. REQUIRES: a valid shape, times of every kind.
  explicit Program(const Shape& shape, const KindTimes& times = {});
  // One trunk of the model: the operations of `run` alone, which have stages, strategies and plans of their own.
  // Positions, kinds and buckets keep their numbers, so owners, updates and checkpoints know no trunks. Its rows
  // begin with the embedding or come from the trunk in front, and end with the head or go to the trunk behind.
  // InputError where the run has no block or lies outside the model.
  Program trunk(base::Interval run) const;

  // The embedding's first, then those of blocks, the head's last.
  const std::vector<std::shared_ptr<const Kind>>& kinds() const { return body_->kinds; }
  int64_t size() const { return static_cast<int64_t>(body_->operations.size()); }
  const Operation& at(int64_t position) const { return body_->operations[static_cast<size_t>(position)]; }
  const Kind& kind_at(int64_t position) const { return *kinds()[static_cast<size_t>(at(position).kind)]; }

  // The operations that are computed: all, or a trunk's.
  base::Interval run() const { return body_->run; }
  int64_t run_blocks() const { return blocks_in(run()).size(); }
  // Positions of the model's ends, and of all its blocks, whatever the trunk.
  int64_t embedding() const { return 0; }
  int64_t head() const { return size() - 1; }
  base::Interval blocks() const { return {1, head()}; }
  base::Interval blocks_in(base::Interval run) const { return base::intersect(run, blocks()); }
  // Whether all blocks are of one kind.
  bool uniform() const { return kinds().size() == 3; }

  // The run of a stage under a TP degree: blocks, the embedding on the first, the head on the last
  // (model/stage_cuts.h). REQUIRES: 0 <= stage < stages <= blocks.
  base::Interval of_stage(int tp, int stages, int stage) const;
  // Whether the other program, of the same shape, has the same stages.
  bool cuts_as(const Program& other) const;
  // Why TP cannot cut an operation, and which degrees cut all, or "". REQUIRES: tp >= 1.
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
  // The first operation that trains, size() where none does: nothing before it has gradients, and nothing is
  // kept of it for a backward pass.
  int64_t first_trained() const { return body_->first_trained; }
  // The part of a run that a backward pass walks. The head's backward is in its forward.
  base::Interval walked_back(base::Interval run) const {
    return base::intersect(run, {first_trained(), head()});
  }

 private:
  struct Body {
    std::vector<std::shared_ptr<const Kind>> kinds;
    std::vector<Operation> operations;
    std::vector<BucketPlace> buckets;
    base::Interval run;
    int64_t first_trained = 0;
    KindTimes times;
    std::map<int, StageCuts> cuts;  // by TP degree; 0: of those without times
  };
  static void cut_stages(const KindTimes& times, Body& body);

  std::shared_ptr<const Body> body_;
};

// The shape with no more than so many blocks of each kind: what layers are measured on.
Shape short_shape(const Shape& shape, int most_blocks = 2);

// Why a TP degree cannot cut this shape ("tp 3 does not divide 4 heads: choose one of 1, 2, 4"), or "" when
// it can: tp divides heads, divides or is a multiple of kv_heads, and is at most ffn_hidden and vocab.
std::string tp_fault(const Shape& shape, int tp);
// Why so many lanes cannot divide this shape's experts ("3 lanes do not divide 8 experts: choose one of 1, 2,
// 4 or 8"), or "".
std::string experts_fault(const Shape& shape, int lanes);
// Why a pipeline of so many stages cannot cut this shape ("9 stages but the model has 8 layers: lower pp"),
// or
// "".
std::string pp_fault(const Shape& shape, int pp);
// The first of these, or "".
std::string cut_fault(const Shape& shape, int tp, int pp, int expert_lanes);

}  // namespace sluice::model

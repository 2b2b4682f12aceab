// The model program: the operations of one forward pass, the same under every strategy. The backward pass
// runs them in reverse. A stage computes a run of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/interval.h"
#include "model/kind.h"
#include "model/model.h"
#include "model/stage_cuts.h"

namespace sluice::model {

// By TP degree: the time of an operation of each of Program::kinds(), in any unit.
using KindTimes = std::map<int, std::vector<int64_t>>;

struct Operation {
  int kind = 0;              // in Program::kinds()
  base::Interval own;        // buckets of its own parameters
  std::vector<int> buckets;  // buckets that it reads and whose gradients it makes, ascending
};

// The unit that pull and push move: an operation's own parameters that are held alike. An operation has a
// bucket for each combination that occurs: trained ones first, among these experts' last.
struct BucketPlace {
  int64_t position = 0;  // the operation's
  bool trained = true;
  bool of_experts = false;  // equal parts of each expert: lanes may divide them by experts
  bool coded = false;       // frozen, in few bits (BaseFormat)

  bool has(const Parameter& parameter) const {
    return parameter.trained == trained && (parameter.experts > 0) == of_experts &&
           parameter.format.coded() == coded;
  }
};

// Immutable and cheap to copy.
class Program {
 public:
  Program() = default;
  // Cuts stages by `times`. For TP degrees without times it uses the blocks' multiply-adds and counts nothing
  // for the ends. REQUIRES: a valid model; times for every kind.
  explicit Program(const Model& model, const KindTimes& times = {});
  // One trunk of the model: only the operations of `run`, with stages, strategies and plans of their own.
  // Positions, kinds and buckets keep their numbers, so owners, updates and checkpoints ignore trunks. The
  // trunk's rows come from the embedding or from the trunk before. They go to the head or to the next trunk.
  // InputError if the run has no block or lies outside the model.
  Program trunk(base::Interval run) const;

  // The embedding's first, then those of blocks, the head's last.
  const std::vector<std::shared_ptr<const Kind>>& kinds() const { return body_->kinds; }
  int64_t size() const { return static_cast<int64_t>(body_->operations.size()); }
  const Operation& at(int64_t position) const { return body_->operations[static_cast<size_t>(position)]; }
  const Kind& kind_at(int64_t position) const { return *kinds()[static_cast<size_t>(at(position).kind)]; }

  // The operations that are computed: all of the model, or a trunk's.
  base::Interval run() const { return body_->run; }
  int64_t run_blocks() const { return blocks_in(run()).size(); }
  // Positions of the model's ends, and of all its blocks, independent of the trunk.
  int64_t embedding() const { return 0; }
  int64_t head() const { return size() - 1; }
  base::Interval blocks() const { return {1, head()}; }
  base::Interval blocks_in(base::Interval run) const { return base::intersect(run, blocks()); }
  // Whether all blocks have one kind.
  bool uniform() const { return kinds().size() == 3; }

  // The run of a stage under a TP degree: blocks, the embedding on the first stage, the head on the last
  // (model/stage_cuts.h). REQUIRES: 0 <= stage < stages <= blocks.
  base::Interval of_stage(int tp, int stages, int stage) const;
  // Whether the other program, made from the same model, has the same stages.
  bool cuts_as(const Program& other) const;
  // Why TP cannot cut an operation, and which degrees cut all operations, or "". REQUIRES: tp >= 1.
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
  // The first operation that trains; size() if there is none. Operations before it have no gradients and keep
  // nothing for a backward pass.
  int64_t first_trained() const { return body_->first_trained; }
  // The part of a run that a backward pass visits. The head's backward is in its forward.
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
    std::map<int, StageCuts> cuts;  // by TP degree; 0: for degrees without times
  };
  static void cut_stages(const KindTimes& times, Body& body);

  std::shared_ptr<const Body> body_;
};

// The model with at most `most_blocks` blocks of each kind, for measuring layers.
Model short_model(const Model& model, int most_blocks = 2);

// Why a TP degree cannot cut this model ("tp 3 does not divide 4 heads: choose one of 1, 2, 4"), or "". TP
// must divide heads, divide kv_heads or be a multiple of them, and be at most ffn_hidden and vocab.
std::string tp_fault(const Model& model, int tp);
// Why `lanes` lanes cannot divide this model's experts ("3 lanes do not divide 8 experts: choose one of 1, 2,
// 4 or 8"), or "".
std::string experts_fault(const Model& model, int lanes);
// Why a pipeline of `pp` stages cannot cut this model ("9 stages but
// the model has 8 layers: lower pp"), or "". A stage has at least one
// block.
std::string pp_fault(const Model& model, int pp);
// The first of the three faults above, or "".
std::string cut_fault(const Model& model, int tp, int pp, int expert_lanes);

}  // namespace sluice::model

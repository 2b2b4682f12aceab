// Local search on the micro-batches of one pipeline with
// any stages and lanes: the last step of every packing.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/packing.h"

namespace sluice::plan {

class MicroBatchImprover {
 public:
  // The packing must outlive the improver.
  explicit MicroBatchImprover(Packing& packing);

  // Takes the first neighbour that ends sooner, again and again. Stops if there is none, if the
  // plan ends by options.enough_ns, or once neighbours of `most_cells` cells of a stage are
  // timed. Neighbours are: a micro-batch at another place or on other lanes; a sequence in
  // another micro-batch, cut over its lanes or whole on one, or in a new micro-batch; two
  // sequences of different micro-batches exchanged. REQUIRES: every micro-batch fits its lanes.
  void improve(TimedMicroBatches& best, int64_t most_cells);
  // As MicroBatchTimer::makespan_ns.
  int64_t makespan_ns(const std::vector<strategy::PipelineMicroBatch>& micro_batches, int64_t limit_ns);
  // The numbers of lanes that micro-batches try, ascending: powers of two, and all lanes.
  const std::vector<int>& widths() const { return widths_; }

 private:
  // The place of a sequence in a micro-batch: cut over its lanes, or whole on lane `own`.
  struct Spot {
    size_t micro_batch = 0;
    int own = -1;
    size_t at = 0;  // index in that list
  };
  bool try_neighbours();
  bool move_micro_batches();
  bool move_sequences();
  bool exchange_sequences();
  bool try_spots(const Spot& from);
  std::vector<Spot> spots() const;
  strategy::MicroBatchSequence sequence(const Spot& spot) const;
  // Takes a sequence out, and its micro-batch if no sequence is left.
  // False if the lanes would be left with whole sequences only.
  static bool take(std::vector<strategy::PipelineMicroBatch>& micro_batches, const Spot& spot);
  bool fits(const strategy::PipelineMicroBatch& micro_batch) const;
  // Whether the candidate becomes the best; copied if so.
  bool consider(const std::vector<strategy::PipelineMicroBatch>& micro_batches);
  bool spent() const { return cells_ <= 0 || best_->makespan_ns <= packing_.options.enough_ns; }

  int lanes() const { return packing_.lanes(); }

  Packing& packing_;
  std::vector<int> widths_;
  // The state of one call of improve():
  TimedMicroBatches* best_ = nullptr;
  int64_t cells_ = 0;  // left
};

}  // namespace sluice::plan

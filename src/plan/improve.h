// Local search on the micro-batches of one pipeline, whatever its stages and lanes: what every packing ends
// with.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/packing.h"

namespace sluice::plan {

class MicroBatchImprover {
 public:
  // Which must outlive it.
  explicit MicroBatchImprover(Packing& packing);

  // Takes the first neighbour that ends sooner, again and again, until none does, it ends by
  // options.enough_ns, or neighbours of `most_cells` cells of a stage have been timed. Neighbours: a
  // micro-batch at another place in the order or on other lanes; a sequence in another micro-batch, shared by
  // its lanes or whole on one, or in a micro-batch of its own anywhere; two sequences of different
  // micro-batches exchanged. REQUIRES: every micro-batch fits its lanes.
  void improve(TimedMicroBatches& best, int64_t most_cells);
  // As MicroBatchTimer's.
  int64_t makespan_ns(const std::vector<strategy::PipelineMicroBatch>& micro_batches, int64_t limit_ns);
  // Lanes of micro-batches that it tries, ascending: powers of two, and all.
  const std::vector<int>& widths() const { return widths_; }

 private:
  // Where a micro-batch has a sequence: shared, or whole on its lane `own`.
  struct Spot {
    int micro_batch = 0;
    int own = -1;
    int at = 0;  // index in that list
  };
  bool try_neighbours();
  bool move_micro_batches();
  bool move_sequences();
  bool exchange_sequences();
  bool try_spots(const Spot& from);
  std::vector<Spot> spots() const;
  strategy::MicroBatchSequence sequence(const Spot& spot) const;
  // Takes a sequence out, and the micro-batch if nothing is left. False where its lanes would have whole
  // sequences alone.
  static bool take(std::vector<strategy::PipelineMicroBatch>& micro_batches, const Spot& spot);
  bool fits(const strategy::PipelineMicroBatch& micro_batch) const;
  // Whether it becomes the best.
  bool consider(std::vector<strategy::PipelineMicroBatch> micro_batches);
  bool spent() const { return cells_ <= 0 || best_->makespan_ns <= packing_.options.enough_ns; }

  int lanes() const { return packing_.lanes(); }

  Packing& packing_;
  std::vector<int> widths_;
  // Of one question:
  TimedMicroBatches* best_ = nullptr;
  int64_t cells_ = 0;  // left
};

}  // namespace sluice::plan

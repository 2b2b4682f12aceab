#include "plan/improve.h"

#include <algorithm>
#include <utility>

#include "base/never.h"

namespace sluice::plan {
namespace {

using strategy::MicroBatchSequence;
using strategy::PipelineMicroBatch;

std::vector<MicroBatchSequence>& list_of(PipelineMicroBatch& micro_batch, int own) {
  if (own < 0) return micro_batch.sequences;
  if (micro_batch.own.empty()) micro_batch.own.resize(static_cast<size_t>(micro_batch.lanes));
  return micro_batch.own[static_cast<size_t>(own)];
}

void drop_empty_lists(PipelineMicroBatch& micro_batch) {
  if (std::ranges::all_of(micro_batch.own, [](const auto& lane) { return lane.empty(); }))
    micro_batch.own.clear();
}

// Moves a micro-batch to another place and shifts those between.
void move_micro_batch(std::vector<PipelineMicroBatch>& micro_batches, size_t from, size_t to) {
  const auto begin = micro_batches.begin();
  const auto at = [&](size_t place) { return begin + static_cast<ptrdiff_t>(place); };
  if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
  if (to < from) std::rotate(at(to), at(from), at(from + 1));
}

}  // namespace

MicroBatchImprover::MicroBatchImprover(Packing& packing) : packing_(packing) {
  for (int width = 1; width < lanes(); width *= 2) widths_.push_back(width);
  widths_.push_back(lanes());
}

int64_t MicroBatchImprover::makespan_ns(const std::vector<PipelineMicroBatch>& micro_batches,
                                        int64_t limit_ns) {
  cells_ -= static_cast<int64_t>(micro_batches.size()) * packing_.scheme.scheme().pp;
  return packing_.timer.makespan_ns(micro_batches, limit_ns);
}

bool MicroBatchImprover::consider(const std::vector<PipelineMicroBatch>& micro_batches) {
  const int64_t ns = makespan_ns(micro_batches, best_->makespan_ns - 1);
  if (ns == base::kNever) return false;
  best_->micro_batches = micro_batches;
  best_->makespan_ns = ns;
  return true;
}

void MicroBatchImprover::improve(TimedMicroBatches& best, int64_t most_cells) {
  best_ = &best;
  cells_ = most_cells;
  while (!spent() && try_neighbours()) {
  }
}

bool MicroBatchImprover::try_neighbours() {
  bool improved = move_micro_batches();
  improved |= move_sequences();
  return exchange_sequences() || improved;
}

bool MicroBatchImprover::fits(const PipelineMicroBatch& micro_batch) const {
  if (micro_batch.lanes > 1) {
    for (const MicroBatchSequence& shared : micro_batch.sequences) {
      if (shared.length_tokens < int64_t{2} * micro_batch.lanes) return false;
    }
  }
  return micro_batch.tokens() <= packing_.scheme.lane_max_len_tokens();
}

bool MicroBatchImprover::move_micro_batches() {
  bool improved = false;
  for (size_t from = 0; from < best_->micro_batches.size() && !spent(); ++from) {
    for (size_t to = 0; to < best_->micro_batches.size() && !spent(); ++to) {
      std::vector<PipelineMicroBatch> next = best_->micro_batches;
      move_micro_batch(next, from, to);
      if (to != from) improved |= consider(next);
      if (lanes() == 1) continue;
      for (const int width : widths_) {
        const PipelineMicroBatch& micro_batch = best_->micro_batches[from];
        if (width != micro_batch.lanes && !micro_batch.own.empty()) continue;
        for (int first = 0; first + width <= lanes() && !spent(); ++first) {
          PipelineMicroBatch moved = best_->micro_batches[from];
          if (width != moved.lanes && !moved.own.empty()) continue;  // `best_` may have changed meanwhile
          if (moved.first_lane == first && moved.lanes == width) continue;
          moved.first_lane = first;
          moved.lanes = width;
          if (!fits(moved)) continue;
          std::vector<PipelineMicroBatch> placed = best_->micro_batches;
          placed[from] = std::move(moved);
          move_micro_batch(placed, from, to);
          improved |= consider(placed);
        }
      }
    }
  }
  return improved;
}

std::vector<MicroBatchImprover::Spot> MicroBatchImprover::spots() const {
  std::vector<Spot> spots;
  for (size_t u = 0; u < best_->micro_batches.size(); ++u) {
    PipelineMicroBatch& micro_batch = best_->micro_batches[u];
    for (int own = -1; own < static_cast<int>(micro_batch.own.size()); ++own) {
      const size_t count = list_of(micro_batch, own).size();
      for (size_t at = 0; at < count; ++at) spots.push_back({u, own, at});
    }
  }
  return spots;
}

MicroBatchSequence MicroBatchImprover::sequence(const Spot& spot) const {
  return list_of(best_->micro_batches[spot.micro_batch], spot.own)[spot.at];
}

bool MicroBatchImprover::take(std::vector<PipelineMicroBatch>& micro_batches, const Spot& spot) {
  PipelineMicroBatch& micro_batch = micro_batches[spot.micro_batch];
  std::vector<MicroBatchSequence>& list = list_of(micro_batch, spot.own);
  list.erase(list.begin() + static_cast<ptrdiff_t>(spot.at));
  drop_empty_lists(micro_batch);
  if (!micro_batch.sequences.empty()) return true;
  if (!micro_batch.own.empty()) return false;
  micro_batches.erase(micro_batches.begin() + static_cast<ptrdiff_t>(spot.micro_batch));
  return true;
}

bool MicroBatchImprover::move_sequences() {
  bool improved = false;
  for (size_t i = 0; i < spots().size() && !spent(); ++i) improved |= try_spots(spots()[i]);
  return improved;
}

// Tries every other place for the sequence until one is better.
bool MicroBatchImprover::try_spots(const Spot& from) {
  const MicroBatchSequence moved = sequence(from);
  std::vector<PipelineMicroBatch> rest = best_->micro_batches;
  if (!take(rest, from)) return false;
  for (size_t u = 0; u < rest.size() && !spent(); ++u) {
    const int lists = rest[u].lanes > 1 ? rest[u].lanes : 0;
    const PipelineMicroBatch without = rest[u];
    for (int own = -1; own < lists && !spent(); ++own) {
      list_of(rest[u], own).push_back(moved);
      if (fits(rest[u]) && consider(rest)) return true;
      rest[u] = without;
    }
  }
  for (size_t place = 0; place <= rest.size(); ++place) {
    for (const int width : widths_) {
      for (int first = 0; first + width <= lanes() && !spent(); ++first) {
        PipelineMicroBatch micro_batch{.first_lane = first, .lanes = width, .sequences = {moved}};
        if (!fits(micro_batch)) break;
        rest.insert(rest.begin() + static_cast<ptrdiff_t>(place), std::move(micro_batch));
        if (consider(rest)) return true;
        rest.erase(rest.begin() + static_cast<ptrdiff_t>(place));
      }
    }
  }
  return false;
}

bool MicroBatchImprover::exchange_sequences() {
  bool improved = false;
  const std::vector<Spot> all = spots();
  std::vector<PipelineMicroBatch> next = best_->micro_batches;
  for (size_t i = 0; i < all.size() && !spent(); ++i) {
    for (size_t j = i + 1; j < all.size() && !spent(); ++j) {
      const Spot &a = all[i], &b = all[j];
      if (a.micro_batch == b.micro_batch && a.own == b.own) continue;
      PipelineMicroBatch &micro_batch_a = next[a.micro_batch], &micro_batch_b = next[b.micro_batch];
      MicroBatchSequence &sequence_a = list_of(micro_batch_a, a.own)[a.at],
                         &sequence_b = list_of(micro_batch_b, b.own)[b.at];
      std::swap(sequence_a, sequence_b);
      if (fits(micro_batch_a) && fits(micro_batch_b) && consider(next)) {
        improved = true;
      } else {
        std::swap(sequence_a, sequence_b);
      }
    }
  }
  return improved;
}

}  // namespace sluice::plan

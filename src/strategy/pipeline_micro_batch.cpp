#include "strategy/pipeline_micro_batch.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {

const char* name_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::kRing: return "ring";
    case Exchange::kHeads: return "heads";
    case Exchange::kNested: return "nested";
    case Exchange::kBalanced: return "balanced";
    case Exchange::kQueries: return "queries";
  }
  SLUICE_ASSERT(false, "unknown exchange");
}

Exchange parse_exchange(const std::string& name) {
  for (const Exchange exchange : kExchanges) {
    if (name == name_of(exchange)) return exchange;
  }
  throw base::InputError(
      base::text("exchange is '", name, "': choose ring, heads, nested, balanced or queries"));
}

int PipelineMicroBatch::head_lanes() const {
  return exchange == Exchange::kHeads ? lanes : exchange == Exchange::kNested ? nested_lanes : 1;
}

base::Interval causal_chunk(int64_t length_tokens, int lanes, int chunk) {
  SLUICE_ASSERT(lanes >= 1 && chunk >= 0 && chunk < 2 * lanes,
                base::text("chunk ", chunk, " on ", lanes, " lanes"));
  return base::even_part(length_tokens, int64_t{2} * lanes, chunk);
}

std::vector<Piece> lane_pieces(const MicroBatchSequence& sequence, int lanes, int lane, Cutting cutting) {
  std::vector<Piece> pieces;
  const auto add = [&](int64_t begin, int64_t end) {
    if (begin < end) pieces.push_back({sequence.sequence, begin, end});
  };
  const int64_t length = sequence.length_tokens;
  if (cutting == Cutting::kContiguous) {
    const base::Interval tokens = base::even_part(length, lanes, lane);
    add(tokens.begin, tokens.end);
    return pieces;
  }
  const int64_t prefix = sequence.has_branches() ? sequence.prefix_tokens : length;
  // How many of the first `tokens` tokens of all chunks belong to the prefix.
  const auto of_prefix = [&](int64_t tokens) {
    return static_cast<int64_t>(static_cast<__int128>(tokens) * prefix / length);
  };
  const auto chunks = {lane, 2 * lanes - 1 - lane};
  for (const int chunk : chunks) {
    const base::Interval tokens = causal_chunk(length, lanes, chunk);
    add(of_prefix(tokens.begin), of_prefix(tokens.end));
  }
  for (const int chunk : chunks) {
    const base::Interval tokens = causal_chunk(length, lanes, chunk);
    add(prefix + tokens.begin - of_prefix(tokens.begin), prefix + tokens.end - of_prefix(tokens.end));
  }
  return pieces;
}

std::vector<Piece> PipelineMicroBatch::pieces_on(int lane) const {
  SLUICE_ASSERT(covers(lane), base::text("lane ", lane, " of lanes ", first_lane, " + ", lanes));
  std::vector<Piece> pieces;
  pieces.reserve((lanes == 1 ? 1 : 2) * sequences.size());
  const auto add_whole = [&](const MicroBatchSequence& whole) {
    pieces.push_back({whole.sequence, 0, whole.length_tokens});
  };
  if (lanes == 1) {
    std::ranges::for_each(sequences, add_whole);
    return pieces;
  }
  for (const MicroBatchSequence& shared : sequences) {
    const std::vector<Piece> part = lane_pieces(shared, lanes, lane - first_lane, cutting_of(exchange));
    pieces.insert(pieces.end(), part.begin(), part.end());
  }
  if (!own.empty()) std::ranges::for_each(own[static_cast<size_t>(lane - first_lane)], add_whole);
  return pieces;
}

int64_t PipelineMicroBatch::tokens_on(int lane) const {
  const int place = lane - first_lane;
  int64_t tokens = 0;
  for (const MicroBatchSequence& sequence : sequences) {
    tokens += lanes == 1 ? sequence.length_tokens
              : cutting_of(exchange) == Cutting::kContiguous
                  ? base::even_part(sequence.length_tokens, lanes, place).size()
                  : causal_chunk(sequence.length_tokens, lanes, place).size() +
                        causal_chunk(sequence.length_tokens, lanes, 2 * lanes - 1 - place).size();
  }
  if (own.empty()) return tokens;
  for (const MicroBatchSequence& whole : own[static_cast<size_t>(place)]) tokens += whole.length_tokens;
  return tokens;
}

int64_t PipelineMicroBatch::tokens() const {
  int64_t most = 0;
  for (int lane = first_lane; lane < end_lane(); ++lane) most = std::max(most, tokens_on(lane));
  return most;
}

std::vector<std::vector<int>> micro_batches_by_lane(std::span<const PipelineMicroBatch> micro_batches,
                                                    int lanes) {
  std::vector<std::vector<int>> by_lane(static_cast<size_t>(lanes));
  for (size_t micro_batch = 0; micro_batch < micro_batches.size(); ++micro_batch) {
    for (int lane = micro_batches[micro_batch].first_lane; lane < micro_batches[micro_batch].end_lane();
         ++lane) {
      by_lane[static_cast<size_t>(lane)].push_back(static_cast<int>(micro_batch));
    }
  }
  return by_lane;
}

namespace {

// Simulates lanes that walk through their lists of micro-batches.
class Injection {
 public:
  explicit Injection(const std::vector<std::vector<int>>& lanes) : lanes_(lanes), next_(lanes.size(), 0) {
    for (const std::vector<int>& lane : lanes) {
      for (const int micro_batch : lane) {
        if (static_cast<size_t>(micro_batch) >= missing_.size())
          missing_.resize(static_cast<size_t>(micro_batch) + 1, 0);
        ++missing_[static_cast<size_t>(micro_batch)];
      }
    }
    for (size_t lane = 0; lane < lanes.size(); ++lane) reach(lane);
  }

  // -1: the lane is done.
  int front(size_t lane) const { return next_[lane] < lanes_[lane].size() ? lanes_[lane][next_[lane]] : -1; }
  bool done() const {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (front(lane) >= 0) return false;
    }
    return true;
  }
  // Takes the micro-batch in front of `lane` if this is its first lane and all of its lanes have reached it.
  bool take(size_t lane) {
    const int micro_batch = front(lane);
    const bool first = lane == 0 || front(lane - 1) != micro_batch;
    if (micro_batch < 0 || !first || missing_[static_cast<size_t>(micro_batch)] > 0) return false;
    for (; lane < lanes_.size() && front(lane) == micro_batch; ++lane) {
      ++next_[lane];
      reach(lane);
    }
    return true;
  }

 private:
  void reach(size_t lane) {
    if (front(lane) >= 0) --missing_[static_cast<size_t>(front(lane))];
  }

  const std::vector<std::vector<int>>& lanes_;
  std::vector<size_t> next_;
  std::vector<int> missing_;  // by micro-batch: lanes that have not reached it
};

}  // namespace

std::optional<std::vector<int>> injection_order(const std::vector<std::vector<int>>& lanes) {
  Injection injection(lanes);
  std::vector<int> order;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const int micro_batch = injection.front(lane);
      if (!injection.take(lane)) continue;
      order.push_back(micro_batch);
      progress = true;
    }
  }
  return injection.done() ? std::optional(std::move(order)) : std::nullopt;
}

std::vector<PipelineMicroBatch> in_injection_order(std::vector<PipelineMicroBatch> micro_batches,
                                                   const std::vector<std::vector<int>>& lanes) {
  const std::optional<std::vector<int>> order = injection_order(lanes);
  SLUICE_ASSERT(order && order->size() == micro_batches.size(), "micro-batches of a pipeline cross");
  std::vector<PipelineMicroBatch> ordered;
  ordered.reserve(micro_batches.size());
  for (const int micro_batch : *order)
    ordered.push_back(std::move(micro_batches[static_cast<size_t>(micro_batch)]));
  return ordered;
}

std::vector<PipelineMicroBatch> in_injection_order(std::vector<PipelineMicroBatch> micro_batches, int lanes) {
  const std::vector<std::vector<int>> by_lane = micro_batches_by_lane(micro_batches, lanes);
  return in_injection_order(std::move(micro_batches), by_lane);
}

}  // namespace sluice::strategy

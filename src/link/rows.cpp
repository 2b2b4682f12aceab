#include "link/rows.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::link {
namespace {

using base::Interval;

bool before(const RowRun& a, const RowRun& b) {
  return std::tuple(a.sequence, a.tokens.begin) < std::tuple(b.sequence, b.tokens.begin);
}

// A lane's rows of a micro-batch, piece behind piece, are cut evenly among its TP ranks.
void add_lane_part(const strategy::LanePart& part, const strategy::Pipeline& pipeline, int stage, int lane,
                   int micro_batch, RowPlacement& placement) {
  const int tp = pipeline.scheme.tp;
  const int64_t shard = (part.tokens() + tp - 1) / tp;
  for (int t = 0; t < tp; ++t) {
    const int rank = pipeline.rank_of(stage, lane, t);
    placement.shard_rows[static_cast<size_t>(rank)].push_back(shard);
    const Interval own{t * shard, (t + 1) * shard};
    int64_t begin = 0;
    for (const strategy::Piece& piece : part.pieces) {
      const Interval rows = base::intersect(own, {begin, begin + piece.tokens()});
      const int64_t first_token = piece.begin - begin;  // row 0's
      begin += piece.tokens();
      if (rows.empty()) continue;
      placement.runs.push_back({piece.sequence,
                                {first_token + rows.begin, first_token + rows.end},
                                rank,
                                micro_batch,
                                rows.begin - own.begin});
    }
  }
}

// Tokens that two runs have in common.
struct RowTransfer {
  RowRun from;
  RowRun to;
  int64_t rows = 0;

  Copy copy(int64_t row_elements) const {
    return {{Memory::kOwner, from.micro_batch, from.row * row_elements},
            {Memory::kCompute, to.micro_batch, to.row * row_elements},
            rows * row_elements};
  }
};

// The part of a run from a token on.
RowRun from_token(RowRun run, int64_t token) {
  run.row += token - run.tokens.begin;
  run.tokens.begin = token;
  return run;
}

// visit(transfer), ascending by sequence and token, of those that `takes(from, to)` of runs says yes to.
template <typename Takes, typename Visit>
void for_each_transfer(const RowPlacement& from, const RowPlacement& to, const Takes& takes, const Visit& visit) {
  auto target = to.runs.begin();
  for (const RowRun& source : from.runs) {
    // Both are ascending: what ends in front of this run is done with.
    while (target != to.runs.end() && std::tuple(target->sequence, target->tokens.end) <=
                                          std::tuple(source.sequence, source.tokens.begin))
      ++target;
    for (auto next = target; next != to.runs.end() && next->sequence == source.sequence &&
                             next->tokens.begin < source.tokens.end;
         ++next) {
      if (!takes(source, *next)) continue;
      const Interval common = base::intersect(source.tokens, next->tokens);
      visit(RowTransfer{from_token(source, common.begin), from_token(*next, common.begin), common.size()});
    }
  }
}

std::vector<int64_t> begins(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), int64_t{0});
  return begins;
}

WireLevel level_of(const std::vector<RowTransfer>& transfers, int world_size, int64_t row_elements, int rank) {
  WireLevel level;
  level.send_elements.resize(static_cast<size_t>(world_size));
  level.receive_elements.resize(static_cast<size_t>(world_size));
  for (const RowTransfer& transfer : transfers) {
    if (transfer.from.rank == transfer.to.rank) continue;
    const int64_t elements = transfer.rows * row_elements;
    if (transfer.from.rank == rank) level.send_elements[static_cast<size_t>(transfer.to.rank)] += elements;
    if (transfer.to.rank == rank) level.receive_elements[static_cast<size_t>(transfer.from.rank)] += elements;
  }
  std::vector<int64_t> send = begins(level.send_elements), receive = begins(level.receive_elements);
  for (const RowTransfer& transfer : transfers) {
    Copy copy = transfer.copy(row_elements);
    if (transfer.from.rank == transfer.to.rank) {
      level.unpack.push_back(copy);
    } else if (transfer.from.rank == rank) {
      int64_t& offset = send[static_cast<size_t>(transfer.to.rank)];
      copy.to = {Memory::kWire, 0, offset};
      offset += copy.elements;
      level.pack.push_back(copy);
    } else {
      int64_t& offset = receive[static_cast<size_t>(transfer.from.rank)];
      copy.from = {Memory::kWire, 0, offset};
      offset += copy.elements;
      level.unpack.push_back(copy);
    }
  }
  return level;
}

}  // namespace

int64_t RowPlacement::tokens() const {
  int64_t tokens = 0;
  for (const RowRun& run : runs) tokens += run.tokens.size();
  return tokens;
}

RowPlacement row_placement(const strategy::StepPlan& plan, int world_size, RowEnd end) {
  RowPlacement placement{.world_size = world_size, .runs = {}, .shard_rows = {}};
  placement.shard_rows.resize(static_cast<size_t>(world_size));
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    const int stage = end == RowEnd::kFirstStage ? 0 : scheme.pp - 1;
    const std::vector<std::vector<strategy::LanePart>> lanes = strategy::lane_parts(pipeline);
    for (int lane = 0; lane < scheme.cp; ++lane) {
      int micro_batch = 0;
      for (const strategy::LanePart& part : lanes[static_cast<size_t>(lane)])
        add_lane_part(part, pipeline.pipeline, stage, lane, micro_batch++, placement);
    }
  }
  std::ranges::sort(placement.runs, before);
  return placement;
}

RoundWire row_wire(const RowPlacement& from, const RowPlacement& to, int64_t row_elements,
                   const strategy::Topology& topology, int rank) {
  SLUICE_ASSERT(from.world_size == to.world_size && from.tokens() == to.tokens(),
                base::text("rows of ", from.tokens(), " tokens on ", from.world_size, " ranks go to ", to.tokens(),
                           " on ", to.world_size));
  std::vector<RowTransfer> inter, intra;
  int64_t rows = 0;
  for_each_transfer(
      from, to,
      [rank](const RowRun& source, const RowRun& target) { return source.rank == rank || target.rank == rank; },
      [&](const RowTransfer& transfer) {
        (topology.same_node(transfer.from.rank, transfer.to.rank) ? intra : inter).push_back(transfer);
        if (transfer.to.rank == rank) rows += transfer.rows;
      });
  int64_t needed = 0;
  for (const RowRun& run : to.runs) needed += run.rank == rank ? run.tokens.size() : 0;
  SLUICE_ASSERT(rows == needed, base::text("rank ", rank, " gets ", rows, " rows of ", needed));
  return {level_of(inter, from.world_size, row_elements, rank),
          level_of(intra, from.world_size, row_elements, rank)};
}

int64_t moved_rows(const RowPlacement& from, const RowPlacement& to) {
  int64_t rows = 0;
  for_each_transfer(
      from, to, [](const RowRun& source, const RowRun& target) { return source.rank != target.rank; },
      [&](const RowTransfer& transfer) { rows += transfer.rows; });
  return rows;
}

}  // namespace sluice::link

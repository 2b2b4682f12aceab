// Carries rows from one act of a step to another (link/rows.h) over the links' communicators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "link/rows.h"
#include "runtime/link_runner.h"

namespace sluice::runtime {

// This rank's shards of rows at an end of an act, [shard rows, width], by micro-batch of its lane.
using ActRows = std::vector<at::Tensor>;

// The exchange that carries one rank's rows from one act to another.
struct RowLink {
  link::RoundWire wire;
  std::vector<int64_t> shard_rows;  // rows of the shards that it fills
  int64_t width = 0;                // numbers of a row
  bool between_nodes = false;       // some ranks lie on other nodes

  int64_t sent_elements() const { return wire.inter.sent() + wire.intra.sent(); }
};
RowLink row_link(const link::RowPlacement& from, const link::RowPlacement& to, int64_t width,
                 const strategy::Topology& topology, int rank);

// Rows of this rank at the ends of a trunk (model::Program::trunk) beyond which other trunks lie.
struct TrunkRows {
  ActRows begin = {};           // given: rows in front of the trunk's first operation
  ActRows end = {};             // left by an evaluation: rows behind the trunk's last operation
  ActRows end_gradient = {};    // given to training: gradient of the sum of losses with respect to `end`
  ActRows begin_gradient = {};  // left by training, if anything in front of the trunk is trained
};

// The runners of both levels, which pull and push use too.
struct RowLinkRunners {
  LinkRunner& inter;
  LinkRunner& intra;
};
// Collective over the runners' ranks. Rows without a token become zeros. REQUIRES: `rows` are the shards that
// the link takes, of this dtype and device; a rank without shards gives none.
ActRows carry(const RowLink& link, const ActRows& rows, comm::DType dtype, c10::Device device,
              const RowLinkRunners& runners);

}  // namespace sluice::runtime

#include "runtime/row_link.h"

#include <ATen/ops/zeros.h>

#include "runtime/precision.h"

namespace sluice::runtime {

RowLink row_link(const link::RowPlacement& from, const link::RowPlacement& to, int64_t width,
                 const strategy::Topology& topology, int rank) {
  return {link::row_wire(from, to, width, topology, rank), to.shard_rows[static_cast<size_t>(rank)], width,
          topology.nodes_of(from.world_size) > 1};
}

ActRows carry(const RowLink& link, const ActRows& rows, comm::DType dtype, c10::Device device,
              const RowLinkRunners& runners) {
  const at::TensorOptions options = at::TensorOptions().dtype(scalar_type(dtype)).device(device);
  ActRows carried;
  for (const int64_t shard : link.shard_rows) carried.push_back(at::zeros({shard, link.width}, options));
  LinkMemories memories{.compute = carried, .owner = {}};
  for (const at::Tensor& shard : rows) memories.owner.push_back(shard.contiguous());
  // A rank without rows takes part, too.
  if (memories.owner.empty()) memories.owner.push_back(at::zeros({0}, options));
  if (link.between_nodes) runners.inter.run(link.wire.inter, memories, dtype);
  runners.intra.run(link.wire.intra, memories, dtype);
  return carried;
}

}  // namespace sluice::runtime

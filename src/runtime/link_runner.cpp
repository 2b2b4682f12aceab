#include "runtime/link_runner.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "base/text.h"

namespace sluice::runtime {

namespace {

// Of what a rank pulls, what it does not push.
int64_t frozen_elements(const model::ParameterTable& table, const graph::LinkPlan& plan, int rank) {
  const link::OwnerLayout owners{plan.world_size};
  int64_t elements = 0;
  for (const link::Holding& holding : plan.layout.holdings(rank)) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(holding.bucket)];
    if (bucket.trained) continue;
    elements += holding.shard.size() - holding.shard.intersect({owners.owned(bucket, rank)}).size();
  }
  return elements;
}

}  // namespace

LinkWires link_wires(const model::ParameterTable& table, const graph::LinkPlan& plan, int rank) {
  const link::Route route =
      link::route_of_rank(table, plan.layout, plan.rounds, plan.world_size, plan.gpus_per_node, rank);
  LinkWires wires;
  for (const link::RouteRound& round : route.rounds) {
    wires.pull.push_back(link::pull_wire(table, plan.layout, round, rank));
    wires.push.push_back(link::push_wire(table, plan.layout, round, plan.gpus_per_node, rank));
    wires.pulled_elements += wires.pull.back().inter.received() + wires.pull.back().intra.received();
    wires.pushed_elements += wires.push.back().inter.sent() + wires.push.back().intra.sent();
  }
  const int64_t pulled = link::pulled_elements(table, plan.layout, plan.world_size, rank);
  const int64_t pushed = pulled - frozen_elements(table, plan, rank);
  SLUICE_ASSERT(wires.pulled_elements == pulled && wires.pushed_elements == pushed,
                base::text("rank ", rank, " pulls ", wires.pulled_elements, " and pushes ",
                           wires.pushed_elements, " elements, theory says ", pulled, " and ", pushed));
  return wires;
}

namespace {

void reserve(at::Tensor& buffer, int64_t bytes, c10::Device device) {
  if (buffer.defined() && buffer.numel() >= bytes) return;
  buffer = at::empty({bytes}, at::TensorOptions().dtype(c10::ScalarType::Byte).device(device));
}

std::vector<int64_t> in_bytes(const std::vector<int64_t>& elements, int64_t element_bytes) {
  std::vector<int64_t> bytes;
  for (const int64_t count : elements) bytes.push_back(count * element_bytes);
  return bytes;
}

}  // namespace

void LinkRunner::run(const link::WireLevel& level, const Memories& memories, comm::DType dtype) {
  const int64_t element_bytes = comm::size_of(dtype);
  const c10::Device device = memories.owner.front().device();
  reserve(send_, level.sent() * element_bytes, device);
  reserve(receive_, level.received() * element_bytes, device);
  const std::vector<int64_t> send_bytes = in_bytes(level.send_elements, element_bytes);
  const std::vector<int64_t> receive_bytes = in_bytes(level.receive_elements, element_bytes);
  if (mover_ == nullptr) mover_ = make_link_mover(device);
  mover_->pack(level, memories, dtype, send_.mutable_data_ptr());
  communicator_.all_to_all(send_.const_data_ptr(), send_bytes, receive_.mutable_data_ptr(), receive_bytes)
      ->wait();
  mover_->unpack(level, receive_.mutable_data_ptr(), memories, dtype);
}

namespace {

template <typename Owner, typename Compute>
LinkRunner::Memories memories_of(ParameterStore& store, Owner owner, Compute compute) {
  LinkRunner::Memories memories;
  for (const model::Bucket& bucket : store.table().buckets) {
    memories.owner.push_back(owner(bucket.index));
    memories.compute.push_back(store.holds(bucket.index) ? compute(store.shard(bucket.index)) : at::Tensor());
  }
  return memories;
}

}  // namespace

LinkRunner::Memories pull_memories(ParameterStore& store) {
  return memories_of(
      store, [&](int bucket) { return store.compute_copy(bucket); },
      [](const ComputeShard& shard) { return shard.parameters; });
}

LinkRunner::Memories push_memories(ParameterStore& store) {
  return memories_of(
      store, [&](int bucket) { return store.owner(bucket).gradient; },
      [](const ComputeShard& shard) { return shard.gradients; });
}

}  // namespace sluice::runtime

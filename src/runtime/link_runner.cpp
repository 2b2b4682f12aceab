#include "runtime/link_runner.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "ops/device.h"
#include "runtime/wire_codec.h"

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

int64_t LinkWires::pushed_bytes(const strategy::PushCodecs& codecs, int64_t wide) const {
  int64_t bytes = 0;
  const auto add = [&](const link::WireLevel& level, strategy::Codec codec) {
    for (const int64_t of_peer : link::wire_bytes(level.send_elements, level.exact_sent, codec, wide))
      bytes += of_peer;
  };
  for (const link::RoundWire& round : push) {
    add(round.inter, codecs.between_nodes);
    add(round.intra, codecs.in_node);
  }
  return bytes;
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
  if (mover_ == nullptr) mover_ = make_link_mover(device);
  mover_->pack(level, memories, dtype, send_.mutable_data_ptr());
  exchange(in_bytes(level.send_elements, element_bytes), in_bytes(level.receive_elements, element_bytes));
  mover_->unpack(level, receive_.mutable_data_ptr(), memories, dtype);
}

void LinkRunner::exchange(const std::vector<int64_t>& send_bytes, const std::vector<int64_t>& receive_bytes) {
  communicator_.all_to_all(send_.const_data_ptr(), send_bytes, receive_.mutable_data_ptr(), receive_bytes)
      ->wait();
}

namespace {

// Where exact elements of a peer's part stand in it; undefined: it has none.
at::Tensor exact_of(const std::vector<base::Interval>& exact, base::Interval part, const at::Device& device) {
  std::vector<int64_t> at;
  for (const base::Interval& some : exact) {
    const base::Interval own = base::intersect(some, part);
    for (int64_t element = own.begin; element < own.end; ++element) at.push_back(element - part.begin);
  }
  return at.empty() ? at::Tensor() : ops::to_device(at, device);
}

// visit(a peer's elements in the wide buffer, its bytes in the coded one), peer after peer.
template <typename Visit>
void for_each_part(const std::vector<int64_t>& elements, const std::vector<int64_t>& bytes, Visit visit) {
  base::Interval own{0, 0}, coded{0, 0};
  for (size_t peer = 0; peer < elements.size(); ++peer) {
    own = {own.end, own.end + elements[peer]};
    coded = {coded.end, coded.end + bytes[peer]};
    if (!own.empty()) visit(own, coded);
  }
}

at::Tensor part_of(const at::Tensor& buffer, base::Interval some) {
  return buffer.narrow(0, some.begin, some.size());
}

}  // namespace

void LinkRunner::run_coded(const link::WireLevel& level, const Memories& memories, comm::DType dtype,
                           strategy::Codec codec, uint64_t seed) {
  if (codec == strategy::Codec::kNone) return run(level, memories, dtype);
  const int64_t wide = comm::size_of(dtype);
  const c10::Device device = memories.owner.front().device();
  const std::vector<int64_t> send_bytes =
      link::wire_bytes(level.send_elements, level.exact_sent, codec, wide);
  const std::vector<int64_t> receive_bytes =
      link::wire_bytes(level.receive_elements, level.exact_received, codec, wide);
  reserve(send_, std::accumulate(send_bytes.begin(), send_bytes.end(), int64_t{0}), device);
  reserve(receive_, std::accumulate(receive_bytes.begin(), receive_bytes.end(), int64_t{0}), device);
  reserve(wide_, std::max(level.sent(), level.received()) * wide, device);
  const at::Tensor wide_N = wide_.view(scalar_type(dtype));
  if (mover_ == nullptr) mover_ = make_link_mover(device);

  mover_->pack(level, memories, dtype, wide_.mutable_data_ptr());
  for_each_part(level.send_elements, send_bytes, [&](base::Interval own, base::Interval coded) {
    at::Tensor part = part_of(wide_N, own), to = part_of(send_, coded);
    const int64_t narrow = strategy::coded_bytes(codec, own.size(), wide);
    if (const at::Tensor exact = exact_of(level.exact_sent, own, device); exact.defined()) {
      to.narrow(0, narrow, to.numel() - narrow).copy_(part.index_select(0, exact).view(at::kByte));
      part.index_fill_(0, exact, 0);
    }
    to.narrow(0, 0, narrow).copy_(encode(codec, part, seed + static_cast<uint64_t>(own.begin)));
  });
  exchange(send_bytes, receive_bytes);
  for_each_part(level.receive_elements, receive_bytes, [&](base::Interval own, base::Interval coded) {
    const at::Tensor part = part_of(wide_N, own), from = part_of(receive_, coded);
    const int64_t narrow = strategy::coded_bytes(codec, own.size(), wide);
    // Bytes may lie where no wider number can.
    decode(codec, from.narrow(0, 0, narrow).clone(), part);
    if (const at::Tensor exact = exact_of(level.exact_received, own, device); exact.defined())
      part.index_copy_(0, exact,
                       from.narrow(0, narrow, from.numel() - narrow).clone().view(scalar_type(dtype)));
  });
  mover_->unpack(level, wide_.mutable_data_ptr(), memories, dtype);
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

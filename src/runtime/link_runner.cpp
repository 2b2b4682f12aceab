#include "runtime/link_runner.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "graph/link_pieces.h"
#include "ops/device.h"
#include "runtime/wire_codec.h"

namespace sluice::runtime {

namespace {

// Elements that a rank pulls but does not push.
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

// The part of a rank's slice of a bucket that travels in a piece: whole coding groups. Small buckets travel
// in the first piece.
base::Interval owned_in_piece(base::Interval owned, int64_t bucket_size, int64_t pieces, int64_t piece) {
  if (bucket_size < strategy::kLeastDifferences) return piece == 0 ? owned : base::Interval{0, 0};
  const base::Interval groups = base::even_part(strategy::codec_groups(owned.size()), pieces, piece);
  return {owned.begin + groups.begin * strategy::kCodecGroup,
          std::min(owned.end, owned.begin + groups.end * strategy::kCodecGroup)};
}

// Cuts transfers so that each owner moves equally much in every piece, and no rank waits for another.
class Pieces {
 public:
  Pieces(const model::ParameterTable& table, int world_size, int64_t pieces)
      : table_(table), owners_{world_size}, pieces_(pieces) {}

  link::RouteRound piece_of(const link::RouteRound& round, int64_t piece) const {
    return {round.buckets, part_of(round.inter, piece), part_of(round.intra, piece)};
  }

 private:
  // All elements of a transfer have one owner, whichever rank passes them on.
  std::vector<link::Transfer> part_of(const std::vector<link::Transfer>& transfers, int64_t piece) const {
    std::vector<link::Transfer> part;
    for (const link::Transfer& transfer : transfers) {
      const model::Bucket& bucket = table_.buckets[static_cast<size_t>(transfer.bucket)];
      const base::Interval owned = owners_.owned(bucket, owner_of(bucket, transfer.slice.begin));
      const base::Interval slice =
          base::intersect(transfer.slice, owned_in_piece(owned, bucket.size, pieces_, piece));
      if (slice.empty()) continue;
      part.push_back(transfer);
      part.back().slice = slice;
    }
    return part;
  }

  int owner_of(const model::Bucket& bucket, int64_t element) const {
    int first = 0, behind = owners_.ranks;
    while (behind - first > 1) {
      const int middle = (first + behind) / 2;
      (owners_.owned(bucket, middle).begin <= element ? first : behind) = middle;
    }
    return first;
  }

  const model::ParameterTable& table_;
  link::OwnerLayout owners_;
  int64_t pieces_;
};

}  // namespace

LinkWires link_wires(const model::ParameterTable& table, const graph::LinkPlan& plan, int rank,
                     bool differences) {
  link::Route route =
      link::route_of_rank(table, plan.layout, plan.rounds, plan.world_size, plan.topology, rank);
  LinkWires wires;
  for (size_t i = 0; i < route.rounds.size(); ++i) {
    const int64_t count = graph::link_pieces(plan, i);
    const Pieces pieces(table, plan.world_size, count);
    std::vector<link::RoundWire>&pull = wires.pull.emplace_back(), &push = wires.push.emplace_back();
    if (differences) wires.differences.emplace_back();
    for (int64_t piece = 0; piece < count; ++piece) {
      const link::RouteRound round =
          count == 1 ? std::move(route.rounds[i]) : pieces.piece_of(route.rounds[i], piece);
      pull.push_back(link::pull_wire(table, plan.layout, round, rank));
      if (differences)
        wires.differences.back().push_back(link::difference_wire(table, plan.layout, round, rank));
      push.push_back(link::push_wire(table, plan.layout, round, plan.topology, rank));
      wires.pulled_elements += pull.back().inter.received() + pull.back().intra.received();
      wires.pushed_elements += push.back().inter.sent() + push.back().intra.sent();
    }
  }
  const int64_t pulled = link::pulled_elements(table, plan.layout, plan.world_size, rank);
  const int64_t pushed = pulled - frozen_elements(table, plan, rank);
  SLUICE_ASSERT(wires.pulled_elements == pulled && wires.pushed_elements == pushed,
                base::text("rank ", rank, " pulls ", wires.pulled_elements, " and pushes ",
                           wires.pushed_elements, " elements, theory says ", pulled, " and ", pushed));
  return wires;
}

namespace {

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Bytes of each peer's part of an exchange.
std::vector<int64_t> difference_bytes(const std::vector<int64_t>& codes, const std::vector<int64_t>& factors,
                                      const std::vector<int64_t>& exact, strategy::PullCodec codec,
                                      int64_t wide) {
  std::vector<int64_t> bytes;
  for (size_t peer = 0; peer < codes.size(); ++peer)
    bytes.push_back(packed_bytes(codec, codes[peer]) + factors[peer] * strategy::kFactorBytes +
                    exact[peer] * wide);
  return bytes;
}
std::vector<int64_t> received_bytes(const link::DifferenceLevel& level, strategy::PullCodec codec,
                                    int64_t wide) {
  return difference_bytes(level.codes.receive_elements, level.factors.receive_elements,
                          level.exact.receive_elements, codec, wide);
}

}  // namespace

strategy::Codec whole_codec(strategy::PullCodec codec, int64_t wide) {
  return codec == strategy::PullCodec::kBFloat16 && wide > 2 ? strategy::Codec::kBFloat16
                                                             : strategy::Codec::kNone;
}

int64_t LinkWires::pulled_bytes(strategy::PullCodec codec, bool differs, int64_t wide) const {
  int64_t bytes = 0;
  if (differs) {
    for (const std::vector<link::RoundDifference>& round : differences) {
      for (const link::RoundDifference& piece : round)
        bytes += sum_of(received_bytes(piece.inter, codec, wide)) +
                 sum_of(received_bytes(piece.intra, codec, wide));
    }
    return bytes;
  }
  const auto add = [&](const link::WireLevel& level) {
    bytes += sum_of(
        link::wire_bytes(level.receive_elements, level.exact_received, whole_codec(codec, wide), wide));
  };
  for (const std::vector<link::RoundWire>& round : pull) {
    for (const link::RoundWire& piece : round) {
      add(piece.inter);
      add(piece.intra);
    }
  }
  return bytes;
}

int64_t LinkWires::pushed_bytes(const strategy::LevelCodecs& codecs, int64_t wide) const {
  int64_t bytes = 0;
  const auto add = [&](const link::WireLevel& level, strategy::Codec codec) {
    bytes += sum_of(link::wire_bytes(level.send_elements, level.exact_sent, codec, wide));
  };
  for (const std::vector<link::RoundWire>& round : push) {
    for (const link::RoundWire& piece : round) {
      add(piece.inter, codecs.between_nodes);
      add(piece.intra, codecs.in_node);
    }
  }
  return bytes;
}

namespace {

void reserve(at::Tensor& buffer, int64_t bytes, c10::Device device) {
  if (buffer.defined() && buffer.numel() >= bytes) return;
  buffer.reset();  // first, so that there are never two
  buffer = at::empty({bytes}, at::TensorOptions().dtype(c10::ScalarType::Byte).device(device));
}

std::vector<int64_t> in_bytes(const std::vector<int64_t>& elements, int64_t element_bytes) {
  std::vector<int64_t> bytes;
  for (const int64_t count : elements) bytes.push_back(count * element_bytes);
  return bytes;
}

}  // namespace

int64_t LinkRunner::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor* buffer : {&send_, &receive_, &wide_})
    bytes += buffer->defined() ? static_cast<int64_t>(buffer->nbytes()) : 0;
  return bytes;
}

void LinkRunner::release() {
  for (at::Tensor* buffer : {&send_, &receive_, &wide_}) buffer->reset();
}

void LinkRunner::make_room(const LinkWires& wires, link::WireLevel link::RoundWire::*level,
                           const Precision& precision, const Codecs& codecs, c10::Device device) {
  const auto make = [&](const std::vector<std::vector<link::RoundWire>>& rounds, comm::DType dtype,
                        strategy::Codec codec) {
    const int64_t wide = comm::size_of(dtype);
    for (const std::vector<link::RoundWire>& round : rounds) {
      for (const link::RoundWire& piece : round) {
        const link::WireLevel& own = piece.*level;
        reserve(send_, sum_of(link::wire_bytes(own.send_elements, own.exact_sent, codec, wide)), device);
        reserve(receive_, sum_of(link::wire_bytes(own.receive_elements, own.exact_received, codec, wide)),
                device);
        if (codec != strategy::Codec::kNone)
          reserve(wide_, std::max(own.sent(), own.received()) * wide, device);
      }
    }
  };
  make(wires.pull, precision.compute, whole_codec(codecs.pull, comm::size_of(precision.compute)));
  make(wires.push, precision.master(), codecs.push);
}

void LinkRunner::run(const link::WireLevel& level, const Memories& memories, comm::DType dtype) {
  const int64_t element_bytes = comm::size_of(dtype);
  const c10::Device device = memories.owner.front().device();
  reserve(send_, level.sent() * element_bytes, device);
  reserve(receive_, level.received() * element_bytes, device);
  if (mover_ == nullptr) mover_ = make_mover_(device);
  mover_->pack(level, memories, dtype, send_.mutable_data_ptr());
  exchange(in_bytes(level.send_elements, element_bytes), in_bytes(level.receive_elements, element_bytes));
  mover_->unpack(level, receive_.mutable_data_ptr(), memories, dtype);
}

void LinkRunner::exchange(const std::vector<int64_t>& send_bytes, const std::vector<int64_t>& receive_bytes) {
  communicator_.all_to_all(send_.const_data_ptr(), send_bytes, receive_.mutable_data_ptr(), receive_bytes)
      ->wait();
}

namespace {

// Calls visit(a peer's elements in the wide buffer, its bytes in the coded one), peer after peer.
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
  reserve(send_, sum_of(send_bytes), device);
  reserve(receive_, sum_of(receive_bytes), device);
  reserve(wide_, std::max(level.sent(), level.received()) * wide, device);
  const at::Tensor wide_N = wide_.view(scalar_type(dtype));
  if (mover_ == nullptr) mover_ = make_mover_(device);

  mover_->pack(level, memories, dtype, wide_.mutable_data_ptr());
  const auto coded_part = [codec](base::Interval own, const std::vector<base::Interval>& exact) {
    return CodedPart{codec, own.size(), exact_in(exact, own)};
  };
  for_each_part(level.send_elements, send_bytes, [&](base::Interval own, base::Interval coded) {
    encode(coded_part(own, level.exact_sent), part_of(wide_N, own), seed + static_cast<uint64_t>(own.begin),
           part_of(send_, coded));
  });
  exchange(send_bytes, receive_bytes);
  for_each_part(level.receive_elements, receive_bytes, [&](base::Interval own, base::Interval coded) {
    decode(coded_part(own, level.exact_received), part_of(receive_, coded), part_of(wide_N, own));
  });
  mover_->unpack(level, wide_.mutable_data_ptr(), memories, dtype);
}

namespace {

// The three kinds of data that a pull in differences moves, between one peer's part of their buffers and its
// bytes.
struct DifferenceBuffers {
  at::Tensor codes, factors, exact;

  DifferenceBuffers(int64_t codes_count, int64_t factors_count, int64_t exact_count, at::ScalarType type,
                    const at::Device& device)
      : codes(at::empty({codes_count}, at::dtype(at::kShort).device(device))),
        factors(at::empty({factors_count}, at::dtype(at::kFloat).device(device))),
        exact(at::empty({exact_count}, at::dtype(type).device(device))) {}

  // Calls visit(codes, factors, exact, bytes) for each peer.
  template <typename Visit>
  void for_each_peer(const std::array<const std::vector<int64_t>*, 3>& counts,
                     const std::vector<int64_t>& bytes, const at::Tensor& wire, const Visit& visit) const {
    std::array<int64_t, 3> at{};
    int64_t byte = 0;
    for (size_t peer = 0; peer < bytes.size(); ++peer) {
      const auto next = [&](const at::Tensor& buffer, size_t kind) {
        const int64_t count = (*counts[kind])[peer];
        const at::Tensor part = buffer.narrow(0, at[kind], count);
        at[kind] += count;
        return part;
      };
      const at::Tensor own_codes = next(codes, 0), own_factors = next(factors, 1), own_exact = next(exact, 2);
      visit(own_codes, own_factors, own_exact, wire.narrow(0, byte, bytes[peer]));
      byte += bytes[peer];
    }
  }
};

void put_bytes(const at::Tensor& from, const at::Tensor& wire, int64_t& at) {
  const auto size = static_cast<int64_t>(from.nbytes());
  wire.narrow(0, at, size).copy_(from.view(at::kByte));
  at += size;
}

// The bytes may be misaligned for wider numbers, so they are cloned first.
void take_bytes(const at::Tensor& to, const at::Tensor& wire, int64_t& at) {
  const auto size = static_cast<int64_t>(to.nbytes());
  to.copy_(wire.narrow(0, at, size).clone().view(to.scalar_type()));
  at += size;
}

}  // namespace

void LinkRunner::run(const link::DifferenceLevel& level, const DifferenceMemories& memories,
                     comm::DType dtype, strategy::PullCodec codec) {
  constexpr comm::DType kSixteenBits = comm::DType::kBFloat16;  // copied unchanged
  const int64_t wide = comm::size_of(dtype);
  const c10::Device device = memories.exact.owner.front().device();
  const std::vector<int64_t> send_bytes = difference_bytes(
      level.codes.send_elements, level.factors.send_elements, level.exact.send_elements, codec, wide);
  const std::vector<int64_t> receive_bytes = received_bytes(level, codec, wide);
  reserve(send_, sum_of(send_bytes), device);
  reserve(receive_, sum_of(receive_bytes), device);
  if (mover_ == nullptr) mover_ = make_mover_(device);

  const DifferenceBuffers sent(level.codes.sent(), level.factors.sent(), level.exact.sent(),
                               scalar_type(dtype), device);
  mover_->pack(level.codes, memories.codes, kSixteenBits, sent.codes.mutable_data_ptr());
  mover_->pack(level.factors, memories.factors, comm::DType::kFloat32, sent.factors.mutable_data_ptr());
  mover_->pack(level.exact, memories.exact, dtype, sent.exact.mutable_data_ptr());
  sent.for_each_peer({&level.codes.send_elements, &level.factors.send_elements, &level.exact.send_elements},
                     send_bytes, send_,
                     [&](const at::Tensor& codes, const at::Tensor& factors, const at::Tensor& exact,
                         const at::Tensor& wire) {
                       int64_t at = packed_bytes(codec, codes.numel());
                       if (at > 0) wire.narrow(0, 0, at).copy_(packed(codec, codes));
                       put_bytes(factors, wire, at);
                       put_bytes(exact, wire, at);
                     });
  exchange(send_bytes, receive_bytes);
  const DifferenceBuffers came(level.codes.received(), level.factors.received(), level.exact.received(),
                               scalar_type(dtype), device);
  came.for_each_peer(
      {&level.codes.receive_elements, &level.factors.receive_elements, &level.exact.receive_elements},
      receive_bytes, receive_,
      [&](const at::Tensor& codes, const at::Tensor& factors, const at::Tensor& exact,
          const at::Tensor& wire) {
        int64_t at = packed_bytes(codec, codes.numel());
        if (at > 0) unpack(codec, wire.narrow(0, 0, at), codes);
        take_bytes(factors, wire, at);
        take_bytes(exact, wire, at);
      });
  mover_->unpack(level.codes, came.codes.mutable_data_ptr(), memories.codes, kSixteenBits);
  mover_->unpack(level.factors, came.factors.mutable_data_ptr(), memories.factors, comm::DType::kFloat32);
  mover_->unpack(level.exact, came.exact.mutable_data_ptr(), memories.exact, dtype);
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

DifferenceMemories difference_memories(ParameterStore& store, const std::vector<CodedNumbers>& came) {
  DifferenceMemories memories{.codes = {}, .factors = {}, .exact = pull_memories(store)};
  for (size_t bucket = 0; bucket < came.size(); ++bucket) {
    const CodedNumbers& own = store.difference(static_cast<int>(bucket));
    memories.codes.owner.push_back(own.codes);
    memories.factors.owner.push_back(own.factors);
    memories.codes.compute.push_back(came[bucket].codes);
    memories.factors.compute.push_back(came[bucket].factors);
  }
  return memories;
}

LinkRunner::Memories push_memories(ParameterStore& store) {
  return memories_of(
      store, [&](int bucket) { return store.owner(bucket).gradient; },
      [](const ComputeShard& shard) { return shard.gradients; });
}

}  // namespace sluice::runtime

#include "runtime/gathered_parameters.h"

#include <algorithm>
#include <utility>

#include "runtime/wire_codec.h"

namespace sluice::runtime {

using strategy::Codec;

GatheredParameters::GatheredParameters(ParameterStore& store, FsdpChannel& channel,
                                       const strategy::Pipeline& pipeline, int t, ops::MemoryAccount& memory,
                                       const Options& options)
    : options_(options),
      holders_(fsdp_holders(store.table(), pipeline, channel.member(), t, options.run_lanes)),
      traffic_{.store = store, .channel = channel, .memory = memory},
      sums_(traffic_, holders_, options.codecs.sums, options.run_lanes < pipeline.scheme.fsdp, options.seed),
      moved_before_(channel.moved_bytes()) {}

void GatheredParameters::begin(const Operation& operation, const Operation* next,
                               const std::vector<char>& contributes, int node) {
  operation_ = operation;
  traffic_.node = node;
  last_ = next == nullptr;
  contributes_ = contributes;
  if (operation.gathers && !holds(operation)) {
    start_gathers(operation);
    finish_gathers();
  }
  if (next != nullptr && next->gathers) start_gathers(*next);
  sums_.start();
  if (!operation.makes_gradients) return;
  for (const int bucket : operation.buckets) {
    const FsdpHolders& holders = holders_of(bucket);
    if (!trained(bucket) || !this->contributes(holders, holders.own)) continue;
    const at::Tensor& resident = traffic_.store.shard(bucket).gradients;
    gradients_[bucket] = holders.count == 1 ? resident.narrow(0, 0, holders.elements)
                                            : traffic_.take(holders.elements, resident.options()).zero_();
  }
}

bool GatheredParameters::contributes(const FsdpHolders& holders, int holder) const {
  const auto first = contributes_.begin() + static_cast<ptrdiff_t>(holder) * holders.stride;
  return std::any_of(first, first + holders.stride, [](char contributes) { return contributes != 0; });
}

// The parts of a gather lie end to end, so the shard is their beginning.
at::Tensor GatheredParameters::parameters(int bucket) const {
  return parameters_.at(bucket).narrow(0, 0, holders_of(bucket).elements);
}

void GatheredParameters::end() {
  finish_gathers();
  sums_.finish();
  const bool in_pieces = last_ && std::ranges::all_of(operation_.buckets, [&](int bucket) {
                           return holders_of(bucket).stride == 1;
                         });
  for (const int bucket : operation_.buckets) {
    const FsdpHolders& holders = holders_of(bucket);
    const auto gathered = parameters_.find(bucket);
    if (gathered != parameters_.end() && !operation_.keeps) {
      if (holders.count > 1) traffic_.give_back(gathered->second);
      parameters_.erase(gathered);
    }
    if (holders.count == 1) continue;  // its gradients are already in place
    const auto made = gradients_.find(bucket);
    at::Tensor own = made == gradients_.end() ? at::Tensor() : std::move(made->second);
    if (!operation_.sums_gradients || !trained(bucket)) {
      traffic_.give_back(own);
      continue;
    }
    std::vector<char> contribute;
    for (int holder = 0; holder < holders.count; ++holder)
      contribute.push_back(contributes(holders, holder) ? 1 : 0);
    sums_.add(bucket, operation_.position, contribute, own, in_pieces);
  }
  gradients_.clear();
  while (last_ && sums_.any()) {
    sums_.start();
    sums_.finish();
  }
}

// Holders differ in how many numbers no codec may change, but all send equally many bytes.
int64_t GatheredParameters::coded_room(const FsdpHolders& holders) const {
  int64_t room = 0;
  const auto wide = static_cast<int64_t>(comm::size_of(traffic_.store.options().precision.compute));
  for (int holder = 0; holder < holders.count; ++holder)
    room = std::max(room, holders.coded(options_.codecs.gather, holder).bytes(wide));
  return room;
}

// The part of a bucket that this member sends.
at::Tensor GatheredParameters::own_part(int bucket, const FsdpHolders& holders) {
  const ComputeShard& shard = traffic_.store.shard(bucket);
  if (options_.codecs.gather == Codec::kNone) return shard.sent;
  const CodedPart part = holders.coded(options_.codecs.gather, holders.own);
  const at::Tensor bytes = traffic_.take(coded_room(holders), shard.sent.options().dtype(at::kByte));
  encode(part, shard.parameters, /*seed=*/{}, bytes.narrow(0, 0, part.bytes(shard.sent.element_size())));
  return bytes;
}

void GatheredParameters::start_gathers(const Operation& operation) {
  for (const int bucket : operation.buckets) {
    const FsdpHolders& holders = holders_of(bucket);
    if (holders.count == 1) {
      parameters_[bucket] = traffic_.store.shard(bucket).sent;
      continue;
    }
    const at::Tensor own = own_part(bucket, holders);
    const at::Tensor came = traffic_.take(own.numel() * holders.count, own.options());
    const size_t move = traffic_.note(operation.position, cost::Movement::kGather);
    std::vector<int> members;
    for (int holder = 0; holder < holders.count; ++holder)
      members.push_back(holders.member(holder, traffic_.channel.member()));
    gathers_.push_back({bucket, own, came, traffic_.channel.gather(own, came, members), move});
  }
}

// All lanes compute with decoded numbers, also the lane that holds the originals.
at::Tensor GatheredParameters::as_numbers(const Gather& gather) {
  if (options_.codecs.gather == Codec::kNone) return gather.came;
  const FsdpHolders& holders = holders_of(gather.bucket);
  const at::Tensor& sent = traffic_.store.shard(gather.bucket).sent;
  const int64_t room = sent.numel(), coded = gather.came.numel() / holders.count;
  const at::Tensor whole = traffic_.take(room * holders.count, sent.options());
  for (int holder = 0; holder < holders.count; ++holder) {
    const CodedPart part = holders.coded(options_.codecs.gather, holder);
    decode(part, gather.came.narrow(0, holder * coded, part.bytes(sent.element_size())),
           whole.narrow(0, holder * room, part.numbers));
  }
  traffic_.give_back(gather.own);
  traffic_.give_back(gather.came);
  return whole;
}

void GatheredParameters::finish_gathers() {
  for (Gather& gather : gathers_) {
    gather.passing.wait(gather.came.device());
    traffic_.moves[gather.move].end = std::chrono::steady_clock::now();
    parameters_[gather.bucket] = as_numbers(gather);
  }
  gathers_.clear();
}

}  // namespace sluice::runtime

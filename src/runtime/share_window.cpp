#include "runtime/share_window.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "link/layout.h"
#include "runtime/precision.h"

namespace sluice::runtime {

// Runs of a group are runs of holders where each has as many whole expert groups; else sums go straight.
ShareWindow::ShareWindow(ParameterStore& store, ShareChannel& channel, const strategy::Pipeline& pipeline, int t,
                         int run_lanes, ops::MemoryAccount& memory)
    : store_(store), channel_(channel), memory_(memory), moved_before_(channel.moved_bytes()) {
  for (const model::Bucket& bucket : store.table().buckets) {
    const link::Residence home = link::residence_of(bucket, pipeline, channel.member(), t);
    const int stride = home.cut.expert_lanes;
    holders_.push_back({.elements = model::shard_of(bucket, home.cut).size(),
                        .stride = stride,
                        .count = home.parts,
                        .own = home.part,
                        .run = run_lanes % stride == 0 ? run_lanes / stride : 1});
  }
}

size_t ShareWindow::note_move(int64_t position, cost::Movement movement) {
  moves_.push_back({.node = node_,
                    .position = position,
                    .movement = movement,
                    .start = std::chrono::steady_clock::now(),
                    .end = {}});
  return moves_.size() - 1;
}

void ShareWindow::wait(ShareChannel::Passing& passing, const at::Device& device) {
  const auto begin = std::chrono::steady_clock::now();
  passing.wait(device);
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
}

at::Tensor ShareWindow::take(int64_t elements, const at::TensorOptions& options) {
  at::Tensor taken = at::empty({elements}, options);
  memory_.take(static_cast<int64_t>(taken.nbytes()));
  return taken;
}

void ShareWindow::give_back(const at::Tensor& tensor) {
  if (tensor.defined()) memory_.give_back(static_cast<int64_t>(tensor.nbytes()));
}

bool ShareWindow::trained(int bucket) const {
  return store_.table().buckets[static_cast<size_t>(bucket)].trained;
}

void ShareWindow::begin(const Operation& operation, const Operation* next,
                        const std::vector<char>& contributes, int node) {
  operation_ = operation;
  node_ = node;
  last_ = next == nullptr;
  contributes_ = contributes;
  if (operation.gathers && !holds(operation)) {
    start_gathers(operation);
    finish_gathers();
  }
  if (next != nullptr && next->gathers) start_gathers(*next);
  start_sums();
  if (!operation.makes_gradients) return;
  for (const int bucket : operation.buckets) {
    const Holders& holders = holders_of(bucket);
    if (!trained(bucket) || !this->contributes(holders, holders.own)) continue;
    const at::Tensor& resident = store_.shard(bucket).gradients;
    gradients_[bucket] = holders.count == 1 ? resident.narrow(0, 0, holders.elements)
                                            : take(holders.elements, resident.options()).zero_();
  }
}

bool ShareWindow::contributes(const Holders& holders, int holder) const {
  const auto first = contributes_.begin() + static_cast<ptrdiff_t>(holder) * holders.stride;
  return std::any_of(first, first + holders.stride, [](char contributes) { return contributes != 0; });
}

// The parts of a gather lie end to end, so that the shard is what it begins with.
at::Tensor ShareWindow::parameters(int bucket) const {
  return parameters_.at(bucket).narrow(0, 0, holders_of(bucket).elements);
}

void ShareWindow::end() {
  finish_gathers();
  finish_sums();
  for (const int bucket : operation_.buckets) {
    const Holders& holders = holders_of(bucket);
    const auto gathered = parameters_.find(bucket);
    if (gathered != parameters_.end() && !operation_.keeps) {
      if (holders.count > 1) give_back(gathered->second);
      parameters_.erase(gathered);
    }
    if (holders.count == 1) continue;  // its gradients are where they belong
    const auto made = gradients_.find(bucket);
    at::Tensor own = made == gradients_.end() ? at::Tensor() : std::move(made->second);
    if (!operation_.sums_gradients || !trained(bucket)) {
      give_back(own);
      continue;
    }
    std::vector<char> contribute;
    for (int holder = 0; holder < holders.count; ++holder)
      contribute.push_back(contributes(holders, holder) ? 1 : 0);
    sums_.push_back({.bucket = bucket,
                     .position = operation_.position,
                     .contributes = std::move(contribute),
                     .between = holders.run == 1,
                     .sent = as_they_travel(std::move(own)),
                     .received = {}});
  }
  gradients_.clear();
  while (last_ && !sums_.empty()) {
    start_sums();
    finish_sums();
  }
}

at::TensorOptions ShareWindow::travelling() const {
  return store_.shard(operation_.buckets.front())
      .gradients.options()
      .dtype(scalar_type(store_.options().precision.reduced()));
}

at::Tensor ShareWindow::as_they_travel(at::Tensor made) {
  if (!made.defined()) return take(0, travelling());
  if (made.scalar_type() == c10::typeMetaToScalarType(travelling().dtype())) return made;
  at::Tensor rounded = take(made.numel(), travelling());
  rounded.copy_(made);
  give_back(made);
  return rounded;
}

void ShareWindow::start_gathers(const Operation& operation) {
  for (const int bucket : operation.buckets) {
    const at::Tensor& own = store_.shard(bucket).sent;
    const Holders& holders = holders_of(bucket);
    if (holders.count == 1) {
      parameters_[bucket] = own;
      continue;
    }
    const at::Tensor whole = take(own.numel() * holders.count, own.options());
    const size_t move = note_move(operation.position, cost::Movement::kGather);
    std::vector<int> members;
    for (int holder = 0; holder < holders.count; ++holder) members.push_back(member_of(holders, holder));
    gathers_.push_back({bucket, whole, channel_.gather(own, whole, members), move});
  }
}

void ShareWindow::finish_gathers() {
  for (Gather& gather : gathers_) {
    wait(gather.passing, gather.whole.device());
    moves_[gather.move].end = std::chrono::steady_clock::now();
    parameters_[gather.bucket] = gather.whole;
  }
  gathers_.clear();
}

bool ShareWindow::gives(const Sum& sum, int run) const {
  const int holders = holders_of(sum.bucket).run;
  const auto first = sum.contributes.begin() + static_cast<ptrdiff_t>(run) * holders;
  return std::any_of(first, first + holders, [](char contributes) { return contributes != 0; });
}

base::Interval ShareWindow::part_of(int bucket, int holder) const {
  const Holders& holders = holders_of(bucket);
  return link::resident_part(holders.elements, holders.count, holder);
}

int64_t ShareWindow::offset_of(int bucket, int run) const {
  const Holders& holders = holders_of(bucket);
  int64_t offset = 0;
  for (int before = 0; before < run; ++before) offset += part_of(bucket, holders.alike(before)).size();
  return offset;
}

// A lane without tokens gives nothing and takes the others' parts all the same.
void ShareWindow::pack_in_run(Sum& sum, Parcels& parcels) {
  const Holders& holders = holders_of(sum.bucket);
  const int first = holders.own_run() * holders.run;
  const int64_t own = offset_of(sum.bucket, holders.runs());
  int64_t givers = 0;
  for (int holder = first; holder < first + holders.run; ++holder)
    givers += holder != holders.own && sum.contributes[static_cast<size_t>(holder)] != 0 ? 1 : 0;
  sum.received = take(givers * own, sum.sent.options());
  int64_t at = 0;
  for (int holder = first; holder < first + holders.run; ++holder) {
    if (holder == holders.own) continue;
    const int member = member_of(holders, holder);
    for (int run = 0; run < holders.runs() && sum.sent.numel() > 0; ++run) {
      const base::Interval part = part_of(sum.bucket, run * holders.run + holder - first);
      parcels.push_back({sum.sent.narrow(0, part.begin, part.size()), member, /*sent=*/true});
    }
    for (int run = 0; run < holders.runs() && sum.contributes[static_cast<size_t>(holder)] != 0; ++run) {
      const int64_t elements = part_of(sum.bucket, holders.alike(run)).size();
      parcels.push_back({sum.received.narrow(0, at, elements), member, /*sent=*/false});
      at += elements;
    }
  }
}

void ShareWindow::pack_between(Sum& sum, Parcels& parcels) {
  const Holders& holders = holders_of(sum.bucket);
  const int64_t own = part_of(sum.bucket, holders.own).size();
  int64_t givers = 0;
  for (int run = 0; run < holders.runs(); ++run)
    givers += run != holders.own_run() && gives(sum, run) ? 1 : 0;
  sum.received = take(givers * own, sum.sent.options());
  int64_t at = 0;
  for (int run = 0; run < holders.runs(); ++run) {
    if (run == holders.own_run()) continue;
    const int alike = holders.alike(run), member = member_of(holders, alike);
    if (sum.sent.numel() > 0) {
      const at::Tensor part =
          sum.sent.narrow(0, offset_of(sum.bucket, run), part_of(sum.bucket, alike).size());
      parcels.push_back({part, member, /*sent=*/true});
    }
    if (!gives(sum, run)) continue;
    parcels.push_back({sum.received.narrow(0, at, own), member, /*sent=*/false});
    at += own;
  }
}

void ShareWindow::start_sums() {
  if (sums_.empty()) return;
  Parcels parcels;
  for (Sum& sum : sums_) {
    const bool behind_runs = sum.between && holders_of(sum.bucket).run > 1;
    sum.move = note_move(sum.position, behind_runs ? cost::Movement::kBetween : cost::Movement::kScatter);
    sum.between ? pack_between(sum, parcels) : pack_in_run(sum, parcels);
  }
  summing_ = channel_.exchange(parcels, sums_.front().sent.device());
}

void ShareWindow::add_in_run(const Sum& sum, int run, const at::Tensor& into) const {
  const Holders& holders = holders_of(sum.bucket);
  const int first = holders.own_run() * holders.run;
  const int64_t own = offset_of(sum.bucket, holders.runs());
  int64_t at = offset_of(sum.bucket, run);
  for (int holder = first; holder < first + holders.run; ++holder) {
    if (sum.contributes[static_cast<size_t>(holder)] == 0) continue;
    if (holder == holders.own) {
      into.add_(sum.sent.narrow(0, part_of(sum.bucket, holders.alike(run)).begin, into.numel()));
    } else {
      into.add_(sum.received.narrow(0, at, into.numel()));
      at += own;
    }
  }
}

// Where they travel narrower than they are summed, each is summed before it is rounded.
at::Tensor ShareWindow::sums_of_run(const Sum& sum) {
  const Holders& holders = holders_of(sum.bucket);
  if (!gives(sum, holders.own_run())) return take(0, sum.sent.options());
  at::Tensor sums = take(offset_of(sum.bucket, holders.runs()), sum.sent.options());
  const at::Tensor& resident = store_.shard(sum.bucket).gradients;
  const bool narrower = sums.scalar_type() != resident.scalar_type();
  for (int run = 0; run < holders.runs(); ++run) {
    const int64_t elements = part_of(sum.bucket, holders.alike(run)).size();
    const at::Tensor into = sums.narrow(0, offset_of(sum.bucket, run), elements);
    const at::Tensor sum_of = narrower ? take(elements, resident.options()) : into;
    add_in_run(sum, run, sum_of.zero_());
    if (!narrower) continue;
    into.copy_(sum_of);
    give_back(sum_of);
  }
  return sums;
}

void ShareWindow::add_runs(const Sum& sum, const at::Tensor& into) const {
  const Holders& holders = holders_of(sum.bucket);
  int64_t at = 0;
  for (int run = 0; run < holders.runs(); ++run) {
    if (!gives(sum, run)) continue;
    if (run == holders.own_run()) {
      into.add_(sum.sent.narrow(0, offset_of(sum.bucket, run), into.numel()));
    } else {
      into.add_(sum.received.narrow(0, at, into.numel()));
      at += into.numel();
    }
  }
}

// In the order of lanes inside a run, then in that of runs.
void ShareWindow::finish_sums() {
  if (!summing_) return;
  wait(*summing_, sums_.front().sent.device());
  summing_.reset();
  std::vector<Sum> between;
  for (Sum& sum : sums_) {
    moves_[sum.move].end = std::chrono::steady_clock::now();
    const at::Tensor& resident = store_.shard(sum.bucket).gradients;
    at::Tensor of_run;
    if (sum.between) {
      add_runs(sum, resident);
    } else if (holders_of(sum.bucket).runs() == 1) {
      add_in_run(sum, 0, resident);
    } else {
      of_run = sums_of_run(sum);
    }
    give_back(sum.sent);
    give_back(sum.received);
    if (!of_run.defined()) continue;
    sum.between = true;
    sum.sent = std::move(of_run);
    sum.received = at::Tensor();
    between.push_back(std::move(sum));
  }
  sums_ = std::move(between);
}

}  // namespace sluice::runtime

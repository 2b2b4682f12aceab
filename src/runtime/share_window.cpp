#include "runtime/share_window.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "link/layout.h"
#include "runtime/precision.h"

namespace sluice::runtime {

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
  if (!operation.makes_gradients || !contributes[static_cast<size_t>(channel_.member())]) return;
  for (const int bucket : operation.buckets) {
    if (!trained(bucket)) continue;
    const at::Tensor& resident = store_.shard(bucket).gradients;
    gradients_[bucket] = take(whole_elements_[static_cast<size_t>(bucket)], resident.options()).zero_();
  }
}

// The parts of a gather lie end to end, so that the shard is what it begins with.
at::Tensor ShareWindow::parameters(int bucket) const {
  return parameters_.at(bucket).narrow(0, 0, whole_elements_[static_cast<size_t>(bucket)]);
}

void ShareWindow::end() {
  finish_gathers();
  finish_sums();
  for (const int bucket : operation_.buckets) {
    const auto gathered = parameters_.find(bucket);
    if (gathered != parameters_.end() && !operation_.keeps) {
      give_back(gathered->second);
      parameters_.erase(gathered);
    }
    const auto made = gradients_.find(bucket);
    at::Tensor own = made == gradients_.end() ? at::Tensor() : std::move(made->second);
    if (!operation_.sums_gradients || !trained(bucket)) {
      give_back(own);
      continue;
    }
    sums_.push_back({.bucket = bucket,
                     .position = operation_.position,
                     .contributes = contributes_,
                     .between = run_lanes_ == 1,
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
    const at::Tensor whole = take(own.numel() * channel_.members(), own.options());
    const size_t move = note_move(operation.position, cost::Movement::kGather);
    gathers_.push_back({bucket, whole, channel_.gather(own, whole), move});
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
  const auto first = sum.contributes.begin() + static_cast<ptrdiff_t>(run) * run_lanes_;
  return std::any_of(first, first + run_lanes_, [](char contributes) { return contributes != 0; });
}

base::Interval ShareWindow::part_of(int bucket, int member) const {
  return link::resident_part(whole_elements_[static_cast<size_t>(bucket)], channel_.members(), member);
}

int64_t ShareWindow::offset_of(int bucket, int run) const {
  int64_t offset = 0;
  for (int before = 0; before < run; ++before) offset += part_of(bucket, alike(before)).size();
  return offset;
}

// A lane without tokens gives nothing and takes the others' parts all the same.
void ShareWindow::pack_in_run(Sum& sum, Parcels& parcels) {
  const int first = own_run() * run_lanes_;
  const int64_t own = offset_of(sum.bucket, runs());
  int64_t givers = 0;
  for (int member = first; member < first + run_lanes_; ++member)
    givers += member != channel_.member() && sum.contributes[static_cast<size_t>(member)] != 0 ? 1 : 0;
  sum.received = take(givers * own, sum.sent.options());
  int64_t at = 0;
  for (int member = first; member < first + run_lanes_; ++member) {
    if (member == channel_.member()) continue;
    for (int run = 0; run < runs() && sum.sent.numel() > 0; ++run) {
      const base::Interval part = part_of(sum.bucket, run * run_lanes_ + member - first);
      parcels.push_back({sum.sent.narrow(0, part.begin, part.size()), member, /*sent=*/true});
    }
    for (int run = 0; run < runs() && sum.contributes[static_cast<size_t>(member)] != 0; ++run) {
      const int64_t elements = part_of(sum.bucket, alike(run)).size();
      parcels.push_back({sum.received.narrow(0, at, elements), member, /*sent=*/false});
      at += elements;
    }
  }
}

void ShareWindow::pack_between(Sum& sum, Parcels& parcels) {
  const int64_t own = part_of(sum.bucket, channel_.member()).size();
  int64_t givers = 0;
  for (int run = 0; run < runs(); ++run) givers += run != own_run() && gives(sum, run) ? 1 : 0;
  sum.received = take(givers * own, sum.sent.options());
  int64_t at = 0;
  for (int run = 0; run < runs(); ++run) {
    if (run == own_run()) continue;
    if (sum.sent.numel() > 0) {
      const at::Tensor part =
          sum.sent.narrow(0, offset_of(sum.bucket, run), part_of(sum.bucket, alike(run)).size());
      parcels.push_back({part, alike(run), /*sent=*/true});
    }
    if (!gives(sum, run)) continue;
    parcels.push_back({sum.received.narrow(0, at, own), alike(run), /*sent=*/false});
    at += own;
  }
}

void ShareWindow::start_sums() {
  if (sums_.empty()) return;
  Parcels parcels;
  for (Sum& sum : sums_) {
    sum.move = note_move(sum.position,
                         sum.between && run_lanes_ > 1 ? cost::Movement::kBetween : cost::Movement::kScatter);
    sum.between ? pack_between(sum, parcels) : pack_in_run(sum, parcels);
  }
  summing_ = channel_.exchange(parcels, sums_.front().sent.device());
}

void ShareWindow::add_in_run(const Sum& sum, int run, const at::Tensor& into) const {
  const int first = own_run() * run_lanes_;
  const int64_t own = offset_of(sum.bucket, runs());
  int64_t at = offset_of(sum.bucket, run);
  for (int member = first; member < first + run_lanes_; ++member) {
    if (sum.contributes[static_cast<size_t>(member)] == 0) continue;
    if (member == channel_.member()) {
      into.add_(sum.sent.narrow(0, part_of(sum.bucket, alike(run)).begin, into.numel()));
    } else {
      into.add_(sum.received.narrow(0, at, into.numel()));
      at += own;
    }
  }
}

// Where they travel narrower than they are summed, each is summed before it is rounded.
at::Tensor ShareWindow::sums_of_run(const Sum& sum) {
  if (!gives(sum, own_run())) return take(0, sum.sent.options());
  at::Tensor sums = take(offset_of(sum.bucket, runs()), sum.sent.options());
  const at::Tensor& resident = store_.shard(sum.bucket).gradients;
  const bool narrower = sums.scalar_type() != resident.scalar_type();
  for (int run = 0; run < runs(); ++run) {
    const int64_t elements = part_of(sum.bucket, alike(run)).size();
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
  int64_t at = 0;
  for (int run = 0; run < runs(); ++run) {
    if (!gives(sum, run)) continue;
    if (run == own_run()) {
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
    } else if (runs() == 1) {
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

#include "runtime/share_window.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "link/layout.h"
#include "runtime/precision.h"

namespace sluice::runtime {

size_t ShareWindow::note_move(int64_t position, bool sum) {
  moves_.push_back({.node = node_,
                    .position = position,
                    .sum = sum,
                    .start = std::chrono::steady_clock::now(),
                    .end = {}});
  return moves_.size() - 1;
}

void ShareWindow::wait(ShareChannel::Passing& passing, const at::Tensor& tensor, size_t move) {
  const auto begin = std::chrono::steady_clock::now();
  passing.wait(tensor.device());
  moves_[move].end = std::chrono::steady_clock::now();
  waited_ns_ += std::chrono::nanoseconds(moves_[move].end - begin).count();
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
                     .parts = as_they_travel(std::move(own)),
                     .received = {},
                     .contributes = contributes_,
                     .position = operation_.position,
                     .passing = std::nullopt});
  }
  gradients_.clear();
  if (!last_) return;
  start_sums();
  finish_sums();
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
    const size_t move = note_move(operation.position, /*sum=*/false);
    gathers_.push_back({bucket, whole, channel_.gather(own, whole), move});
  }
}

void ShareWindow::finish_gathers() {
  for (Gather& gather : gathers_) {
    wait(gather.passing, gather.whole, gather.move);
    parameters_[gather.bucket] = gather.whole;
  }
  gathers_.clear();
}

// A member without tokens gives nothing and takes the others' parts all the same.
void ShareWindow::start_sums() {
  for (Sum& sum : sums_) {
    const int64_t elements = whole_elements_[static_cast<size_t>(sum.bucket)];
    const int64_t own = store_.shard(sum.bucket).gradients.numel();
    const auto element_bytes = static_cast<int64_t>(sum.parts.element_size());
    std::vector<int64_t> send_bytes, receive_bytes;
    int64_t givers = 0;
    for (int member = 0; member < channel_.members(); ++member) {
      const int64_t part = link::resident_part(elements, channel_.members(), member).size();
      send_bytes.push_back(sum.parts.numel() > 0 ? part * element_bytes : 0);
      const bool gives = sum.contributes[static_cast<size_t>(member)] != 0;
      receive_bytes.push_back(gives ? own * element_bytes : 0);
      givers += gives ? 1 : 0;
    }
    sum.received = take(givers * own, sum.parts.options());
    sum.move = note_move(sum.position, /*sum=*/true);
    sum.passing = channel_.scatter(sum.parts, send_bytes, sum.received, receive_bytes);
  }
}

// In the order of lanes.
void ShareWindow::finish_sums() {
  for (Sum& sum : sums_) {
    SLUICE_ASSERT(sum.passing.has_value(), "a sum that was never started");
    wait(*sum.passing, sum.received, sum.move);
    const at::Tensor& resident = store_.shard(sum.bucket).gradients;
    for (int64_t at = 0; at < sum.received.numel(); at += resident.numel())
      resident.add_(sum.received.narrow(0, at, resident.numel()));
    give_back(sum.parts);
    give_back(sum.received);
  }
  sums_.clear();
}

}  // namespace sluice::runtime

#include "runtime/share_window.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "link/layout.h"

namespace sluice::runtime {

void ShareWindow::wait(ShareChannel::Passing& passing, const at::Tensor& tensor) {
  const auto begin = std::chrono::steady_clock::now();
  passing.wait(tensor.device());
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
}

at::Tensor ShareWindow::take(int64_t elements, const at::Tensor& like) {
  at::Tensor taken = at::empty({elements}, like.options());
  memory_.take(static_cast<int64_t>(taken.nbytes()));
  return taken;
}

void ShareWindow::give_back(const at::Tensor& tensor) {
  if (tensor.defined()) memory_.give_back(static_cast<int64_t>(tensor.nbytes()));
}

void ShareWindow::begin(const Operation& operation, const Operation* next,
                        const std::vector<char>& contributes) {
  operation_ = operation;
  last_ = next == nullptr;
  contributes_ = contributes;
  if (operation.gathers && !parameters_.contains(operation.buckets.front())) {
    start_gathers(operation);
    finish_gathers();
  }
  if (next != nullptr && next->gathers) start_gathers(*next);
  start_sums();
  if (!operation.scatters || !contributes[static_cast<size_t>(channel_.member())]) return;
  for (const int bucket : operation.buckets) {
    const at::Tensor& resident = store_.shard(bucket).gradients;
    gradients_[bucket] = take(whole_elements_[static_cast<size_t>(bucket)], resident).zero_();
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
    if (gathered != parameters_.end()) {
      give_back(gathered->second);
      parameters_.erase(gathered);
    }
    if (!operation_.scatters) continue;
    const auto made = gradients_.find(bucket);
    sums_.push_back({.bucket = bucket,
                     .parts = made == gradients_.end() ? at::Tensor() : std::move(made->second),
                     .received = {},
                     .contributes = contributes_,
                     .passing = std::nullopt});
  }
  gradients_.clear();
  if (!last_) return;
  start_sums();
  finish_sums();
}

void ShareWindow::start_gathers(const Operation& operation) {
  for (const int bucket : operation.buckets) {
    const at::Tensor& own = store_.shard(bucket).sent;
    const at::Tensor whole = take(own.numel() * channel_.members(), own);
    gathers_.push_back({bucket, whole, channel_.gather(own, whole)});
  }
}

void ShareWindow::finish_gathers() {
  for (Gather& gather : gathers_) {
    wait(gather.passing, gather.whole);
    parameters_[gather.bucket] = gather.whole;
  }
  gathers_.clear();
}

// A member without tokens gives nothing and takes the others' parts all the same.
void ShareWindow::start_sums() {
  for (Sum& sum : sums_) {
    const int64_t elements = whole_elements_[static_cast<size_t>(sum.bucket)];
    const at::Tensor& resident = store_.shard(sum.bucket).gradients;
    std::vector<int64_t> send_bytes, receive_bytes;
    int64_t received = 0;
    for (int member = 0; member < channel_.members(); ++member) {
      const int64_t part = link::resident_part(elements, channel_.members(), member).size();
      send_bytes.push_back(sum.parts.defined() ? part * resident.element_size() : 0);
      const bool gives = sum.contributes[static_cast<size_t>(member)] != 0;
      receive_bytes.push_back(gives ? static_cast<int64_t>(resident.nbytes()) : 0);
      received += gives ? resident.numel() : 0;
    }
    if (!sum.parts.defined()) sum.parts = take(0, resident);
    sum.received = take(received, resident);
    sum.passing = channel_.scatter(sum.parts, send_bytes, sum.received, receive_bytes);
  }
}

// In the order of lanes.
void ShareWindow::finish_sums() {
  for (Sum& sum : sums_) {
    SLUICE_ASSERT(sum.passing.has_value(), "a sum that was never started");
    wait(*sum.passing, sum.received);
    const at::Tensor& resident = store_.shard(sum.bucket).gradients;
    for (int64_t at = 0; at < sum.received.numel(); at += resident.numel())
      resident.add_(sum.received.narrow(0, at, resident.numel()));
    give_back(sum.parts);
    give_back(sum.received);
  }
  sums_.clear();
}

}  // namespace sluice::runtime

#include "devices.h"

#include <algorithm>
#include <utility>

namespace sluice::nccl_stand_in {
namespace {

bool is_front(const Work& work, const std::deque<WorkPtr>& works) {
  return !works.empty() && works.front().get() == &work;
}

}  // namespace

Stream* Devices::new_stream(int device) {
  streams_.push_back(std::make_unique<Stream>(Stream{.device = device, .works = {}}));
  return streams_.back().get();
}

Stream* Devices::default_stream(int device) {
  Stream*& stream = default_streams_[device];
  if (stream == nullptr) stream = new_stream(device);
  return stream;
}

void Devices::push(const WorkPtr& work) {
  work->stream->works.push_back(work);
  busy_.insert(work->stream);
}

void Devices::launch(const WorkPtr& kernel) {
  push(kernel);
  launched_[kernel->stream->device].push_back(kernel);
}

void Devices::run() {
  bool moved = true;
  while (std::exchange(moved, false)) {
    for (Stream* stream : std::set(busy_)) moved = run_front(*stream) || moved;
  }
}

bool Devices::run_front(Stream& stream) {
  bool moved = false;
  while (!stream.works.empty() && !stream.works.front()->is_kernel()) {
    const WorkPtr work = stream.works.front();
    work->run();
    finish(*work);
    moved = true;
  }
  if (stream.works.empty()) {
    busy_.erase(&stream);
    return moved;
  }
  const WorkPtr kernel = stream.works.front();
  return (runs(*kernel) && run_kernel(*kernel)) || moved;
}

bool Devices::runs(const Work& kernel) {
  return is_front(kernel, kernel.stream->works) && is_front(kernel, launched_[kernel.stream->device]);
}

bool Devices::run_kernel(Work& kernel) {
  if (kernel.kind == Work::Kind::kMessages) return run_messages(kernel);
  Communicator& of = *kernel.member->of;
  const auto all_run = [&](const Collective& collective) {
    return std::ranges::all_of(collective, [&](const WorkPtr& each) { return each && runs(*each); });
  };
  if (kernel.place != of.first_place || !all_run(of.collectives.front())) return false;
  const Collective collective = std::move(of.collectives.front());
  of.collectives.pop_front();
  ++of.first_place;
  carry_out(collective);
  for (const WorkPtr& each : collective) finish(*each);
  return true;
}

bool Devices::run_messages(Work& kernel) {
  bool moved = false;
  const int own = kernel.member->index;
  for (auto& [ends, pair] : kernel.member->of->pairs) {
    if (ends.first != own && ends.second != own) continue;
    while (!pair.sends.empty() && !pair.receives.empty() && runs(*pair.sends.front().first) &&
           runs(*pair.receives.front().first)) {
      Part& send = pair.sends.front().first->parts[pair.sends.front().second];
      Part& receive = pair.receives.front().first->parts[pair.receives.front().second];
      carry_out(send, receive);
      send.done = receive.done = moved = true;
      pair.sends.pop_front();
      pair.receives.pop_front();
    }
  }
  if (!std::ranges::all_of(kernel.parts, &Part::done)) return moved;
  finish(kernel);
  return true;
}

// REQUIRES: the work is its stream's first.
void Devices::finish(Work& work) {
  work.done = true;
  Stream& stream = *work.stream;
  std::deque<WorkPtr>& launched = launched_[stream.device];
  if (is_front(work, launched)) launched.pop_front();
  stream.works.pop_front();
}

void Devices::drop(const std::function<bool(const Work&)>& which) {
  const auto drops = [&](const WorkPtr& work) { return work && work->is_kernel() && which(*work); };
  for (auto& [device, kernels] : launched_) {
    for (const WorkPtr& kernel : kernels) {
      if (!drops(kernel)) continue;
      Communicator& of = *kernel->member->of;
      for (auto& [ends, pair] : of.pairs) {
        std::erase_if(pair.sends, [&](const auto& each) { return each.first == kernel; });
        std::erase_if(pair.receives, [&](const auto& each) { return each.first == kernel; });
      }
      for (Collective& collective : of.collectives) std::ranges::replace(collective, kernel, WorkPtr());
      kernel->done = true;
      std::erase(kernel->stream->works, kernel);
    }
    std::erase_if(kernels, drops);
  }
}

void Devices::clear() {
  for (const auto& stream : streams_) stream->works.clear();
  busy_.clear();
  launched_.clear();
}

}  // namespace sluice::nccl_stand_in

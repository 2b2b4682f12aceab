#include "runtime/stream_waits.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <memory>
#include <utility>

namespace sluice::runtime {

class StreamWaits::Timer final : public comm::StreamTimer {
 public:
  Timer(StreamWaits& waits, comm::WaitClock& clock) : waits_(waits), clock_(clock) {}

  void begin() override {
    runs_ = waits_.counts_now();
    if (!runs_) return;
    if (waits_.used_ == waits_.all_.size()) {
      const auto event = [&] { return c10::Event(waits_.device_.type(), c10::EventFlag::BACKEND_DEFAULT); };
      waits_.all_.push_back({event(), event()});
    }
    Wait& wait = waits_.all_[waits_.used_++];
    wait.clock = &clock_;
    wait.begin.record(*waits_.stream_);
  }
  void end() override {
    if (runs_) waits_.all_[waits_.used_ - 1].end.record(*waits_.stream_);
  }

 private:
  StreamWaits& waits_;
  comm::WaitClock& clock_;
  bool runs_ = false;
};

StreamWaits::Counting::Counting(StreamWaits& waits, std::vector<comm::WaitClock*> clocks)
    : clocks_(std::move(clocks)) {
  for (comm::WaitClock* clock : clocks_) clock->timer = std::make_unique<Timer>(waits, *clock);
}

StreamWaits::Counting::~Counting() {
  for (comm::WaitClock* clock : clocks_) clock->timer = nullptr;
}

void StreamWaits::begin_step(const c10::Stream& stream) {
  stream_ = stream;
  used_ = 0;
}

bool StreamWaits::counts_now() const {
  return stream_ && c10::impl::VirtualGuardImpl(device_.type()).getStream(device_) == *stream_;
}

int64_t StreamWaits::settle(size_t first, size_t last) const {
  int64_t sum_ns = 0;
  for (size_t i = first; i < last; ++i) {
    const Wait& wait = all_[i];
    const int64_t ns = std::llround(wait.begin.elapsedTime(wait.end) * 1e6);
    wait.clock->waited_ns += ns;
    sum_ns += ns;
  }
  return sum_ns;
}

}  // namespace sluice::runtime

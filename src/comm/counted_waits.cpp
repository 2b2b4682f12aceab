#include "comm/counted_waits.h"

#include <chrono>
#include <utility>

namespace sluice::comm {
namespace {

// Returns what `work` returns, and lets the timer run meanwhile.
template <typename Work>
auto timed(StreamTimer& timer, Work work) {
  timer.begin();
  struct End {
    StreamTimer& timer;
    ~End() { timer.end(); }
  } const end{timer};
  return work();
}

class CountedPending final : public Pending {
 public:
  CountedPending(PendingPtr inner, const std::vector<int>& ranks, std::shared_ptr<WaitClock> clock)
      : inner_(std::move(inner)), ranks_(ranks), clock_(std::move(clock)) {}

  void wait() override {
    wait([] {});
  }
  void wait(const std::function<void()>& order) override {
    if (clock_->timer) {
      timed(*clock_->timer, [&] {
        inner_->wait();
        order();
      });
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    inner_->wait(order);
    clock_->waited_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
    const int member = inner_->awaited_peer();
    clock_->awaited_rank = member < 0 ? -1 : ranks_[static_cast<size_t>(member)];
  }
  int awaited_peer() const override { return inner_->awaited_peer(); }

 private:
  PendingPtr inner_;
  const std::vector<int>& ranks_;  // the communicator's, which outlives its operations
  std::shared_ptr<WaitClock> clock_;
};

class CountedCommunicator final : public Communicator {
 public:
  CountedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<WaitClock> clock)
      : Communicator(inner->name(), inner->ranks(), inner->rank()),
        inner_(std::move(inner)),
        clock_(std::move(clock)) {}

  PendingPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    return counted([&] { return inner_->all_gather(send, receive, bytes); });
  }
  PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                        std::span<const int64_t> receive_bytes) override {
    return counted([&] { return inner_->all_to_all(send, send_bytes, receive, receive_bytes); });
  }
  PendingPtr reduce_scatter(const void* send, void* receive, int64_t count, DType dtype) override {
    return counted([&] { return inner_->reduce_scatter(send, receive, count, dtype); });
  }
  PendingPtr exchange(std::span<const Message> messages) override {
    return counted([&] { return inner_->exchange(messages); });
  }

 private:
  template <typename Issue>
  PendingPtr counted(Issue issue) const {
    PendingPtr pending = clock_->timer ? timed(*clock_->timer, issue) : issue();
    return std::make_unique<CountedPending>(std::move(pending), ranks(), clock_);
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<WaitClock> clock_;
};

}  // namespace

std::unique_ptr<Communicator> counting_waits(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<WaitClock> clock) {
  if (!inner) return nullptr;
  return std::make_unique<CountedCommunicator>(std::move(inner), std::move(clock));
}

}  // namespace sluice::comm

#include "serve/pending_texts.h"

#include <utility>

namespace sluice::serve {

PendingTexts::PendingTexts(std::vector<std::vector<int32_t>> texts, std::function<void()> done)
    : texts_(std::move(texts)), done_(std::move(done)), numbers_(texts_.size()) {}

bool PendingTexts::read(std::vector<std::vector<float>>& numbers) {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  if (known_ < texts_.size()) return false;
  numbers = std::move(numbers_);
  return true;
}

bool PendingTexts::publish(size_t text, const std::vector<double>& numbers) {
  {
    const std::lock_guard lock(mutex_);
    if (fault_) return false;
    numbers_[text].assign(numbers.begin(), numbers.end());
    if (++known_ < texts_.size()) return false;
  }
  done_();
  return true;
}

void PendingTexts::fail(std::exception_ptr fault) {
  {
    const std::lock_guard lock(mutex_);
    if (fault_ || known_ == texts_.size()) return;
    fault_ = std::move(fault);
  }
  done_();
}

void PendingTexts::begin_anew() {
  const std::lock_guard lock(mutex_);
  known_ = 0;
}

}  // namespace sluice::serve

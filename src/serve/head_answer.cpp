#include "serve/head_answer.h"

#include <exception>
#include <utility>

#include "serve/responses.h"

namespace sluice::serve {

HeadAnswer::~HeadAnswer() {
  if (pending_ != nullptr) pending_->abort();
}

void HeadAnswer::begin(const std::string& body, HeadEndpoint endpoint) {
  try {
    request_ = context_.reader.read(body, endpoint);
    const auto computed = [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->computed_ = true;
      self->changed();
    };
    // The connection keeps this answer alive until it is sent or the client has left. The answer
    // must not finish before pending_ is set, so changed() is called once more at the end.
    done_ = true;
    reply_->on_change([self = shared_from_this()] { self->changed(); });
    pending_ = context_.engine.add_request(client_, request_.texts, computed);
    if (pending_ == nullptr) return reply_->send(overloaded());
    done_ = false;
    changed();
  } catch (...) {
    done_ = true;
    reply_->send(fault_response(std::current_exception(), context_.failed));
  }
}

// From any thread: the client has left, or all numbers are there.
void HeadAnswer::changed() {
  if (done_) return;
  if (reply_->gone()) {
    if (!done_.exchange(true)) pending_->abort();
    return;
  }
  if (!computed_ || done_.exchange(true)) return;
  context_.pool.post(FairPool::Turn::kGoOn, client_, [self = shared_from_this()] { self->finish(); });
}

void HeadAnswer::finish() {
  try {
    std::vector<std::vector<float>> numbers;
    pending_->read(numbers);
    about_.fingerprint = context_.fingerprint();
    reply_->send(
        {.status = 200, .body = head_response_body(request_, about_, context_.reader.head, numbers)});
  } catch (...) {
    reply_->send(fault_response(std::current_exception(), context_.failed));
  }
}

}  // namespace sluice::serve

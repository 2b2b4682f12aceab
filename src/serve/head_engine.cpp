#include "serve/head_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::serve {

HeadEngine::HeadEngine(Compute compute, const HeadEngineOptions& options)
    : compute_(std::move(compute)),
      options_(options),
      followers_(options.followers),
      thread_([this] { run(); }) {}

HeadEngine::~HeadEngine() {
  stop("the server was stopped");
  thread_.join();
  if (fault_.empty()) followers_.end();
}

std::shared_ptr<PendingTexts> HeadEngine::add_request(const std::string& client,
                                                      std::vector<std::vector<int32_t>> texts,
                                                      std::function<void()> done) {
  const auto request = std::make_shared<PendingTexts>(std::move(texts), std::move(done));
  {
    const std::lock_guard lock(mutex_);
    if (!fault_.empty()) throw Unavailable(fault_);
    if (stopping_) throw Unavailable(stopped_);
    if (queue_.texts() >= options_.max_queued_texts ||
        queue_.texts_of(client) >= options_.max_queued_texts_of_client) {
      ++stats_.refused;
      return nullptr;
    }
    queue_.add(client, request);
    ++stats_.requests;
    for (const std::vector<int32_t>& text : request->texts()) stats_.prompt_tokens += std::ssize(text);
  }
  asked_.notify_one();
  return request;
}

bool HeadEngine::between_steps(const std::function<void()>& action, const std::string& others) {
  std::unique_lock lock(mutex_);
  if (stopping_ || !fault_.empty()) return false;
  action_ = &action;
  others_take_ = others;
  asked_.notify_one();
  acted_.wait(lock, [this] { return action_ == nullptr || ended_; });
  const bool ran = action_ == nullptr;
  action_ = nullptr;
  if (action_fault_) std::rethrow_exception(std::exchange(action_fault_, nullptr));
  return ran;
}

void HeadEngine::stop(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (!std::exchange(stopping_, true)) stopped_ = why;
  asked_.notify_all();
  acted_.wait(lock, [this] { return ended_; });
}

EngineStats HeadEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting = queue_.texts();
  stats.clients = queue_.clients();
  return stats;
}

std::string HeadEngine::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void HeadEngine::run() {
  std::exception_ptr end;
  try {
    while (wait_until_asked()) {
      act();
      if (const std::vector<QueuedText> batch = take_batch(); !batch.empty()) compute(batch);
    }
    const std::lock_guard lock(mutex_);
    end = std::make_exception_ptr(Unavailable(stopped_));
  } catch (const std::exception& error) {
    end = std::make_exception_ptr(Unavailable(error.what()));
    const std::lock_guard lock(mutex_);
    fault_ = error.what();
  }
  end_all(end);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  acted_.notify_all();
}

// False: the engine ends.
bool HeadEngine::wait_until_asked() {
  constexpr std::chrono::seconds kPatience{5};  // then a message checks the other ranks
  std::unique_lock lock(mutex_);
  const auto asked = [this] { return stopping_ || action_ != nullptr || !queue_.empty(); };
  while (!asked_.wait_for(lock, kPatience, asked)) followers_.wait();
  return !stopping_;
}

void HeadEngine::act() {
  const std::function<void()>* action = nullptr;
  std::string others;
  {
    const std::lock_guard lock(mutex_);
    action = action_;
    others = others_take_;
  }
  if (action == nullptr) return;
  std::exception_ptr fault;
  try {
    if (!others.empty()) followers_.broadcast(others);
    (*action)();
  } catch (...) {
    fault = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (!fault) queue_.begin_anew();
  action_fault_ = fault;
  action_ = nullptr;
  acted_.notify_all();
}

std::vector<QueuedText> HeadEngine::take_batch() {
  const std::lock_guard lock(mutex_);
  stats_.aborted += queue_.drop_aborted();
  std::vector<QueuedText> batch = queue_.take_batch(options_.max_num_batched_tokens);
  for (const QueuedText& text : batch) in_batch_.push_back(text.request);
  stats_.running = std::ssize(batch);
  return batch;
}

void HeadEngine::compute(const std::vector<QueuedText>& batch) {
  std::vector<std::vector<int32_t>> texts;
  for (const QueuedText& text : batch) texts.push_back(text.tokens());
  followers_.compute(texts);
  const std::vector<std::vector<double>> numbers = compute_(texts);
  for (size_t i = 0; i < batch.size(); ++i) batch[i].request->publish(batch[i].index, numbers.at(i));
  const std::lock_guard lock(mutex_);
  in_batch_.clear();
  stats_.running = 0;
  ++stats_.engine_steps;
}

void HeadEngine::end_all(const std::exception_ptr& why) {
  std::vector<std::shared_ptr<PendingTexts>> all;
  {
    const std::lock_guard lock(mutex_);
    all = queue_.take_all();
    std::ranges::move(in_batch_, std::back_inserter(all));
    in_batch_.clear();
    stats_.running = 0;
  }
  for (const auto& request : all) request->fail(why);  // complete requests stay complete
}

}  // namespace sluice::serve

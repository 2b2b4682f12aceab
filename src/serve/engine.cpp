#include "serve/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"

namespace sluice::serve {

Conversation::Conversation(inference::Request request, generate::Manner manner)
    : request_(std::move(request)),
      manner_(std::move(manner)),
      texts_(static_cast<size_t>(request_.samples)) {}

int64_t Conversation::wait(int64_t seen) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return version_ > seen || !fault_.empty() || all_ended(); });
  if (!fault_.empty()) throw base::RunError(fault_);
  shown_ = texts_;
  return version_;
}

bool Conversation::finished() const { return std::ranges::all_of(shown_, &Text::finished); }
bool Conversation::all_ended() const { return std::ranges::all_of(texts_, &Text::finished); }

void Conversation::show(int sample, const generate::Said& said, bool finished) {
  const std::lock_guard lock(mutex_);
  Text& text = texts_[static_cast<size_t>(sample)];
  if (!finished && said.tokens.size() == text.said.tokens.size()) return;
  text = {said, finished};
  ++version_;
  changed_.notify_all();
}

void Conversation::fail(const std::string& fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  changed_.notify_all();
}

Engine::Engine(const generate::Decoder& decoder, const EngineOptions& options)
    : options_(options),
      generator_(decoder, options.scheduler, options.never),
      company_(options.company),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  asked_.notify_all();
  acted_.notify_all();
  thread_.join();
  fail("the server was stopped");
  if (fault_.empty()) company_.end();
}

std::shared_ptr<Conversation> Engine::ask(inference::Request request, generate::Manner manner) {
  generate::validate(manner.sampling);
  inference::require_room(std::ssize(request.prompt), request.most_tokens, options_.scheduler.pages);
  auto conversation = std::make_shared<Conversation>(std::move(request), std::move(manner));
  {
    const std::lock_guard lock(mutex_);
    if (!fault_.empty()) throw base::RunError(fault_);
    if (stopping_ || static_cast<int64_t>(new_.size()) + figures_.waiting >= options_.most_waiting) {
      ++figures_.refused;
      return nullptr;
    }
    ++figures_.conversations;
    figures_.prompt_tokens += static_cast<int64_t>(conversation->request().prompt.size());
    new_.push_back(conversation);
  }
  asked_.notify_one();
  return conversation;
}

EngineFigures Engine::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

std::string Engine::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

// False: the engine ends.
bool Engine::wait_until_asked() {
  constexpr std::chrono::minutes kPatience{1};
  const auto asked = [this] { return stopping_ || action_ || !new_.empty() || !open_.empty(); };
  std::unique_lock lock(mutex_);
  while (!asked_.wait_for(lock, kPatience, asked)) company_.wait();
  return !stopping_;
}

void Engine::drop(int64_t text) {
  generator_.drop(text);
  company_.drop(text);
}

void Engine::run() {
  try {
    while (wait_until_asked()) {
      if (open_.empty()) act();
      take_new();
      if (open_.empty()) continue;
      drop_left();
      company_.pass();
      generator_.step();
      publish();
    }
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      fault_ = error.what();
      acted_.notify_all();
    }
    fail(error.what());
  }
}

bool Engine::between_texts(const std::function<void()>& action, const std::string& others) {
  std::unique_lock lock(mutex_);
  if (stopping_ || !fault_.empty()) return false;
  action_ = &action;
  others_take_ = others;
  asked_.notify_one();
  acted_.wait(lock, [this] { return action_ == nullptr || stopping_ || !fault_.empty(); });
  const bool ran = action_ == nullptr;
  action_ = nullptr;
  if (action_fault_) std::rethrow_exception(std::exchange(action_fault_, nullptr));
  return ran;
}

void Engine::act() {
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
    if (!others.empty()) company_.take(others);
    (*action)();
  } catch (...) {
    fault = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  action_fault_ = fault;
  action_ = nullptr;
  acted_.notify_all();
}

void Engine::take_new() {
  const std::lock_guard lock(mutex_);
  if (action_ != nullptr) return;  // texts under way come to their end first
  for (; !new_.empty(); new_.pop_front()) {
    const Conversation& conversation = *new_.front();
    const int64_t first = generator_.add(conversation.request(), conversation.manner());
    company_.add(conversation.request(), conversation.manner());
    open_.push_back({std::move(new_.front()), first});
  }
}

void Engine::drop_left() {
  const auto left = std::erase_if(open_, [this](const Open& open) {
    const auto& [conversation, first] = open;
    if (!conversation->left()) return false;
    for (int sample = 0; sample < conversation->request().samples; ++sample) {
      if (!conversation->ended(sample)) drop(first + sample);
    }
    return true;
  });
  const std::lock_guard lock(mutex_);
  figures_.left += static_cast<int64_t>(left);
}

void Engine::publish() {
  for (const auto& [conversation, first] : open_) {
    for (int sample = 0; sample < conversation->request().samples; ++sample) {
      if (conversation->ended(sample)) continue;
      const bool finished = generator_.finished(first + sample);
      conversation->show(sample, generator_.said(first + sample), finished);
      if (finished) drop(first + sample);
    }
  }
  std::erase_if(open_, [](const Open& open) { return open.conversation->all_ended(); });
  const inference::Scheduler& scheduler = generator_.scheduler();
  const std::lock_guard lock(mutex_);
  figures_.spoken_tokens = generator_.spoken();
  figures_.passes = generator_.passes();
  figures_.evictions = scheduler.evictions();
  figures_.under_way = scheduler.under_way();
  figures_.waiting = scheduler.waiting();
  figures_.free_pages = scheduler.free_pages();
  figures_.pages = options_.scheduler.pages;
}

void Engine::fail(const std::string& fault) {
  std::deque<std::shared_ptr<Conversation>> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(new_);
  }
  for (const Open& open : open_) all.push_back(open.conversation);
  open_.clear();
  for (const auto& conversation : all) conversation->fail(fault);
}

}  // namespace sluice::serve

#include "serve/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"

namespace sluice::serve {
namespace {

// Adds what `now` has more than `known`.
void add_news(const generate::Output& now, generate::Output& known) {
  const auto add = [](const auto& from, auto& to) {
    to.insert(to.end(), from.begin() + std::min(std::ssize(to), std::ssize(from)), from.end());
  };
  add(now.tokens, known.tokens);
  add(now.log_probabilities, known.log_probabilities);
  add(now.alternatives, known.alternatives);
  // Scores of a prompt are whole when the first token is there.
  if (known.prompt_logprobs.empty() && (!now.tokens.empty() || now.finish_reason))
    known.prompt_logprobs = now.prompt_logprobs;
  known.finish_reason = now.finish_reason;
  known.end_token = now.end_token;
  known.end_log_probability = now.end_log_probability;
}

}  // namespace

PendingRequest::PendingRequest(inference::Request request, generate::SamplingParams sampling_params,
                               News news, std::function<void()> changed)
    : request_(std::move(request)),
      sampling_params_(std::move(sampling_params)),
      news_(news),
      changed_(std::move(changed)),
      texts_(static_cast<size_t>(request_.samples)) {}

bool PendingRequest::read(std::vector<SequenceOutput>& texts) {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  texts.resize(texts_.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    add_news(texts_[i].output, texts[i].output);
    texts[i].finished = texts_[i].finished;
  }
  return all_finished();
}

bool PendingRequest::all_finished() const { return std::ranges::all_of(texts_, &SequenceOutput::finished); }

void PendingRequest::publish(int sample, const generate::Output& output, bool finished) {
  {
    const std::lock_guard lock(mutex_);
    SequenceOutput& text = texts_[static_cast<size_t>(sample)];
    if (fault_ || (!finished && output.tokens.size() == text.output.tokens.size())) return;
    add_news(output, text.output);
    text.finished = finished;
    if (news_ == News::kEnd && !all_finished()) return;
  }
  changed_();
}

void PendingRequest::fail(std::exception_ptr fault) {
  {
    const std::lock_guard lock(mutex_);
    if (fault_) return;
    fault_ = std::move(fault);
    for (SequenceOutput& text : texts_) text.finished = true;
  }
  changed_();
}

bool PendingRequest::begin_again() {
  constexpr int kMost = 3;
  const std::lock_guard lock(mutex_);
  if (news_ == News::kTokens || fault_ || all_finished() || begun_again_ == kMost) return false;
  ++begun_again_;
  texts_.assign(texts_.size(), {});
  return true;
}

Engine::Engine(const generate::Decoder& decoder, const EngineOptions& options)
    : options_(options),
      generator_(decoder, options.scheduler, options.never),
      followers_(options.followers),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  stop("the server was stopped");
  thread_.join();
  if (fault_.empty()) followers_.end();
}

void Engine::stop(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (!std::exchange(stopping_, true)) stopped_ = why;
  asked_.notify_all();
  acted_.notify_all();
  acted_.wait(lock, [this] { return ended_; });
}

std::shared_ptr<PendingRequest> Engine::add_request(const std::string& client, inference::Request request,
                                                    generate::SamplingParams sampling_params,
                                                    PendingRequest::News news,
                                                    std::function<void()> changed) {
  generate::validate(sampling_params.sampling);
  inference::require_capacity(std::ssize(request.prompt), request.max_tokens, options_.scheduler.kv_blocks);
  const int64_t texts = request.samples;
  const auto conversation = std::make_shared<PendingRequest>(std::move(request), std::move(sampling_params),
                                                             news, std::move(changed));
  {
    const std::lock_guard lock(mutex_);
    if (!fault_.empty()) throw Unavailable(fault_);
    if (stopping_) throw Unavailable(stopped_);
    int64_t waiting = figures_.waiting;
    for (const auto& [name, each] : clients_) waiting += each.new_texts;
    Client& own = clients_.try_emplace(client, Client{.number = next_client_}).first->second;
    next_client_ += own.number == next_client_ ? 1 : 0;
    const auto known = waiting_of_.find(own.number);
    const int64_t own_waiting = own.new_texts + (known == waiting_of_.end() ? 0 : known->second);
    if (waiting >= options_.max_queued_requests || own_waiting >= options_.most_waiting_of_client) {
      ++figures_.refused;
      if (own.conversations == 0) clients_.erase(client);
      return nullptr;
    }
    ++figures_.requests;
    figures_.prompt_tokens += std::ssize(conversation->request().prompt);
    ++own.conversations;
    own.new_texts += texts;
    new_.push_back({conversation, 0, client});
  }
  asked_.notify_one();
  return conversation;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats figures = figures_;
  figures.clients = std::ssize(clients_);
  for (const auto& [name, each] : clients_) figures.waiting += each.new_texts;
  return figures;
}

std::string Engine::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool Engine::idle() const {
  const std::lock_guard lock(mutex_);
  return clients_.empty();
}

// False: the engine ends.
bool Engine::wait_until_asked() {
  constexpr std::chrono::seconds kPatience{5};  // until the other ranks are asked whether they are there
  const auto asked = [this] { return stopping_ || action_ || !new_.empty() || !open_.empty(); };
  std::unique_lock lock(mutex_);
  while (!asked_.wait_for(lock, kPatience, asked)) followers_.wait();
  return !stopping_;
}

void Engine::drop(int64_t text) {
  generator_.abort(text);
  followers_.abort(text);
}

void Engine::run() {
  std::exception_ptr end;
  // Only without other ranks: several ranks would have to agree at each layer.
  const std::function<void()> newcomers =
      options_.followers == nullptr ? [this] { let_newcomers_through(); } : std::function<void()>();
  try {
    while (wait_until_asked()) {
      act();
      take_new();
      drop_left();
      if (open_.empty()) {
        count();
        continue;
      }
      followers_.engine_step();
      generator_.step(newcomers);
      publish();
    }
    end = std::make_exception_ptr(Unavailable(stopped_));
  } catch (const std::exception& error) {
    end = std::make_exception_ptr(Unavailable(error.what()));
    const std::lock_guard lock(mutex_);
    fault_ = error.what();
  }
  fail(end);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  acted_.notify_all();
}

bool Engine::between_steps(const std::function<void()>& action, const std::string& others) {
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
    if (!others.empty()) followers_.broadcast(others);
    generator_.settle();
    (*action)();
  } catch (...) {
    fault = std::current_exception();
  }
  begin_anew();
  const std::lock_guard lock(mutex_);
  action_fault_ = fault;
  action_ = nullptr;
  acted_.notify_all();
}

// Answers that nobody has seen a part of are the new parameters' alone.
void Engine::begin_anew() {
  generator_.begin_anew();
  for (Open& open : open_) {
    if (!open.conversation->begin_again()) continue;
    for (int sample = 0; sample < open.conversation->request().samples; ++sample) {
      if (generator_.knows(open.first + sample)) drop(open.first + sample);
    }
    int64_t client = 0;
    {
      const std::lock_guard lock(mutex_);
      client = clients_.at(open.client).number;
    }
    begin(open, client);
  }
}

void Engine::take_new() {
  std::deque<Open> taken;
  std::vector<int64_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(new_);
    for (const Open& open : taken) {
      Client& client = clients_.at(open.client);
      client.new_texts -= open.conversation->request().samples;
      waiting_of_[client.number] += open.conversation->request().samples;
      figures_.waiting += open.conversation->request().samples;
      numbers.push_back(client.number);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i].conversation->aborted() || !begin(taken[i], numbers[i])) {
      close(taken[i]);
    } else {
      open_.push_back(std::move(taken[i]));
    }
  }
}

// False: it has failed.
bool Engine::begin(Open& open, int64_t client) {
  const std::shared_ptr<PendingRequest>& conversation = open.conversation;
  inference::Request request = conversation->request();
  request.client = client;
  generate::SamplingParams sampling_params = conversation->sampling_params();
  if (sampling_params.stop_condition) {
    // A tokenizer that fails ends this text alone.
    sampling_params.stop_condition = [ends = std::move(sampling_params.stop_condition),
                                      conversation](const generate::Output& output) {
      try {
        return ends(output);
      } catch (const std::exception&) {
        conversation->fail(std::current_exception());
        return true;
      }
    };
  }
  try {
    open.first = generator_.add(request, sampling_params);
  } catch (const std::exception&) {
    conversation->fail(std::current_exception());
    return false;
  }
  followers_.add(request, sampling_params);
  return true;
}

// Of its client nothing of this conversation is left.
void Engine::close(const Open& open) {
  const std::lock_guard lock(mutex_);
  figures_.aborted += open.conversation->aborted() ? 1 : 0;
  const auto client = clients_.find(open.client);
  if (--client->second.conversations > 0) return;
  waiting_of_.erase(client->second.number);
  clients_.erase(client);
}

void Engine::drop_left() {
  std::erase_if(open_, [this](const Open& open) {
    const auto& [conversation, first, client] = open;
    if (!conversation->aborted()) return false;
    for (int sample = 0; sample < conversation->request().samples; ++sample) {
      if (!conversation->sample_finished(sample)) drop(first + sample);
    }
    close(open);
    return true;
  });
}

// Runs between two layers of a pass. It leaves that pass's texts alone: others must not have their pages yet.
void Engine::let_newcomers_through() {
  {
    const std::lock_guard lock(mutex_);
    if (new_.empty() || stopping_) return;
  }
  take_new();
  const std::vector<int64_t> texts = generator_.step_within();
  if (texts.empty()) return;
  for (const Open& open : open_) {
    const int64_t end = open.first + open.conversation->request().samples;
    const auto is_own = [&](int64_t text) { return open.first <= text && text < end; };
    if (std::ranges::any_of(texts, is_own)) show(open);
  }
  close_ended();
}

void Engine::show(const Open& open) {
  const auto& [conversation, first, client] = open;
  for (int sample = 0; sample < conversation->request().samples; ++sample) {
    if (!generator_.knows(first + sample)) continue;
    const bool finished = generator_.finished(first + sample);
    conversation->publish(sample, generator_.output(first + sample), finished);
    if (finished || conversation->failed()) drop(first + sample);
  }
}

void Engine::publish() {
  for (const Open& open : open_) show(open);
  close_ended();
}

void Engine::close_ended() {
  std::erase_if(open_, [this](const Open& open) {
    const bool ended = open.conversation->all_finished();
    if (ended) close(open);
    return ended;
  });
  count();
}

void Engine::count() {
  const inference::Scheduler& scheduler = generator_.scheduler();
  const std::lock_guard lock(mutex_);
  figures_.generated_tokens = generator_.generated_tokens();
  figures_.engine_steps = generator_.engine_steps();
  figures_.preemptions = scheduler.preemptions();
  figures_.running = scheduler.num_running();
  figures_.waiting = scheduler.num_waiting();
  figures_.free_kv_blocks = scheduler.free_kv_blocks();
  figures_.kv_blocks = options_.scheduler.kv_blocks;
  waiting_of_ = scheduler.waiting_by_client();
}

void Engine::fail(const std::exception_ptr& fault) {
  std::deque<Open> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(new_);
    clients_.clear();
  }
  for (Open& open : open_) all.push_back(std::move(open));
  open_.clear();
  for (const Open& open : all) open.conversation->fail(fault);
}

}  // namespace sluice::serve

#include "serve/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"

namespace sluice::serve {
namespace {

// Appends the part of `now` that `known` lacks.
void append_news(const generate::Output& now, generate::Output& known) {
  const auto append = [](const auto& from, auto& to) {
    to.insert(to.end(), from.begin() + std::min(std::ssize(to), std::ssize(from)), from.end());
  };
  append(now.tokens, known.tokens);
  append(now.log_probabilities, known.log_probabilities);
  append(now.alternatives, known.alternatives);
  // All of the prompt is scored once there is a first token.
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
      outputs_(static_cast<size_t>(request_.samples)) {}

bool PendingRequest::read(std::vector<SequenceOutput>& outputs) {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
  outputs.resize(outputs_.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    append_news(outputs_[i].output, outputs[i].output);
    outputs[i].finished = outputs_[i].finished;
  }
  return all_finished();
}

bool PendingRequest::all_finished() const { return std::ranges::all_of(outputs_, &SequenceOutput::finished); }

void PendingRequest::publish(int sample, const generate::Output& output, bool finished) {
  {
    const std::lock_guard lock(mutex_);
    SequenceOutput& known = outputs_[static_cast<size_t>(sample)];
    if (fault_ || (!finished && output.tokens.size() == known.output.tokens.size())) return;
    append_news(output, known.output);
    known.finished = finished;
    if (news_ == News::kEnd && !all_finished()) return;
  }
  changed_();
}

void PendingRequest::fail(std::exception_ptr fault) {
  {
    const std::lock_guard lock(mutex_);
    if (fault_) return;
    fault_ = std::move(fault);
    for (SequenceOutput& output : outputs_) output.finished = true;
  }
  changed_();
}

bool PendingRequest::restart() {
  constexpr int kMostRestarts = 3;
  const std::lock_guard lock(mutex_);
  if (news_ == News::kTokens || fault_ || all_finished() || restarts_ == kMostRestarts) return false;
  ++restarts_;
  outputs_.assign(outputs_.size(), {});
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
  work_came_.notify_all();
  action_done_.notify_all();
  action_done_.wait(lock, [this] { return ended_; });
}

std::shared_ptr<PendingRequest> Engine::add_request(const std::string& client, inference::Request request,
                                                    generate::SamplingParams sampling_params,
                                                    PendingRequest::News news,
                                                    std::function<void()> changed) {
  generate::validate(sampling_params.sampling);
  inference::require_capacity(std::ssize(request.prompt), request.max_tokens, options_.scheduler.kv_blocks);
  const int64_t sequences = request.samples;
  const auto pending = std::make_shared<PendingRequest>(std::move(request), std::move(sampling_params), news,
                                                        std::move(changed));
  {
    const std::lock_guard lock(mutex_);
    if (!fault_.empty()) throw Unavailable(fault_);
    if (stopping_) throw Unavailable(stopped_);
    int64_t waiting = stats_.waiting;
    for (const auto& [name, each] : clients_) waiting += each.new_sequences;
    Client& own = clients_.try_emplace(client, Client{.number = next_client_}).first->second;
    next_client_ += own.number == next_client_ ? 1 : 0;
    const auto known = waiting_by_client_.find(own.number);
    const int64_t own_waiting = own.new_sequences + (known == waiting_by_client_.end() ? 0 : known->second);
    if (waiting >= options_.max_queued_requests || own_waiting >= options_.max_queued_requests_of_client) {
      ++stats_.refused;
      if (own.requests == 0) clients_.erase(client);
      return nullptr;
    }
    ++stats_.requests;
    stats_.prompt_tokens += std::ssize(pending->request().prompt);
    ++own.requests;
    own.new_sequences += sequences;
    new_requests_.push_back({pending, 0, client});
  }
  work_came_.notify_one();
  return pending;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.clients = std::ssize(clients_);
  for (const auto& [name, each] : clients_) stats.waiting += each.new_sequences;
  return stats;
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
bool Engine::wait_for_work() {
  constexpr std::chrono::seconds kPatience{5};  // then a message checks the other ranks
  const auto has_work = [this] { return stopping_ || action_ || !new_requests_.empty() || !active_.empty(); };
  std::unique_lock lock(mutex_);
  while (!work_came_.wait_for(lock, kPatience, has_work)) followers_.wait();
  return !stopping_;
}

void Engine::abort_sequence(int64_t sequence) {
  generator_.abort(sequence);
  followers_.abort(sequence);
}

void Engine::run() {
  std::exception_ptr end;
  // On one rank only: several ranks would have to agree at each layer.
  const std::function<void()> between_layers =
      options_.followers == nullptr ? [this] { step_within_for_newcomers(); } : std::function<void()>();
  try {
    while (wait_for_work()) {
      run_action();
      take_new_requests();
      drop_aborted();
      if (active_.empty()) {
        update_stats();
        continue;
      }
      followers_.engine_step();
      generator_.step(between_layers);
      publish();
    }
    end = std::make_exception_ptr(Unavailable(stopped_));
  } catch (const std::exception& error) {
    end = std::make_exception_ptr(Unavailable(error.what()));
    const std::lock_guard lock(mutex_);
    fault_ = error.what();
  }
  fail_all(end);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  action_done_.notify_all();
}

bool Engine::between_steps(const std::function<void()>& action, const std::string& message) {
  std::unique_lock lock(mutex_);
  if (stopping_ || !fault_.empty()) return false;
  action_ = &action;
  message_ = message;
  work_came_.notify_one();
  // An action that has begun uses the caller's values until it has run, also when the engine stops meanwhile.
  action_done_.wait(lock, [this] { return action_ == nullptr || ended_; });
  const bool ran = action_ == nullptr;
  action_ = nullptr;
  if (action_fault_) std::rethrow_exception(std::exchange(action_fault_, nullptr));
  return ran;
}

void Engine::run_action() {
  const std::function<void()>* action = nullptr;
  std::string message;
  {
    const std::lock_guard lock(mutex_);
    action = action_;
    message = message_;
  }
  if (action == nullptr) return;
  std::exception_ptr fault;
  try {
    if (!message.empty()) followers_.broadcast(message);
    generator_.settle();
    (*action)();
  } catch (...) {
    fault = std::current_exception();
  }
  generator_.preempt_all();
  restart_requests();
  const std::lock_guard lock(mutex_);
  action_fault_ = fault;
  action_ = nullptr;
  action_done_.notify_all();
}

// Restarts requests of which clients have seen nothing, so that their outputs use only the new parameters.
void Engine::restart_requests() {
  for (ActiveRequest& request : active_) {
    if (!request.pending->restart()) continue;
    for (int64_t sequence = request.first_sequence; sequence < request.end_sequence(); ++sequence) {
      if (generator_.knows(sequence)) abort_sequence(sequence);
    }
    int64_t client = 0;
    {
      const std::lock_guard lock(mutex_);
      client = clients_.at(request.client).number;
    }
    start(request, client);
  }
}

void Engine::take_new_requests() {
  std::deque<ActiveRequest> taken;
  std::vector<int64_t> clients;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(new_requests_);
    for (const ActiveRequest& request : taken) {
      const int samples = request.pending->request().samples;
      Client& client = clients_.at(request.client);
      client.new_sequences -= samples;
      waiting_by_client_[client.number] += samples;
      stats_.waiting += samples;
      clients.push_back(client.number);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i].pending->aborted() || !start(taken[i], clients[i])) {
      close(taken[i]);
    } else {
      active_.push_back(std::move(taken[i]));
    }
  }
}

// False: the request has failed.
bool Engine::start(ActiveRequest& active, int64_t client) {
  const std::shared_ptr<PendingRequest>& pending = active.pending;
  inference::Request request = pending->request();
  request.client = client;
  generate::SamplingParams sampling_params = pending->sampling_params();
  if (sampling_params.stop_condition) {
    // A tokenizer that fails ends this request alone.
    sampling_params.stop_condition = [stops = std::move(sampling_params.stop_condition),
                                      pending](const generate::Output& output) {
      try {
        return stops(output);
      } catch (const std::exception&) {
        pending->fail(std::current_exception());
        return true;
      }
    };
  }
  try {
    active.first_sequence = generator_.add(request, sampling_params);
  } catch (const std::exception&) {
    pending->fail(std::current_exception());
    return false;
  }
  followers_.add(request, sampling_params);
  return true;
}

void Engine::close(const ActiveRequest& request) {
  const std::lock_guard lock(mutex_);
  // An answer that is whole lets go of its request, perhaps before this.
  stats_.aborted += request.pending->aborted() && !request.pending->all_finished() ? 1 : 0;
  const auto client = clients_.find(request.client);
  if (--client->second.requests > 0) return;
  waiting_by_client_.erase(client->second.number);
  clients_.erase(client);
}

void Engine::drop_aborted() {
  std::erase_if(active_, [this](const ActiveRequest& request) {
    if (!request.pending->aborted()) return false;
    for (int sample = 0; sample < request.pending->request().samples; ++sample) {
      if (!request.pending->sample_finished(sample)) abort_sequence(request.first_sequence + sample);
    }
    close(request);
    return true;
  });
}

// Called between two layers of an engine step. Sequences of
// that step are not touched, because their blocks are in use.
void Engine::step_within_for_newcomers() {
  {
    const std::lock_guard lock(mutex_);
    if (new_requests_.empty() || stopping_) return;
  }
  take_new_requests();
  const std::vector<int64_t> sequences = generator_.step_within();
  if (sequences.empty()) return;
  for (const ActiveRequest& request : active_) {
    const auto is_own = [&](int64_t sequence) {
      return request.first_sequence <= sequence && sequence < request.end_sequence();
    };
    if (std::ranges::any_of(sequences, is_own)) publish(request);
  }
  close_finished();
}

void Engine::publish(const ActiveRequest& request) {
  for (int sample = 0; sample < request.pending->request().samples; ++sample) {
    const int64_t sequence = request.first_sequence + sample;
    if (!generator_.knows(sequence)) continue;
    const bool finished = generator_.finished(sequence);
    request.pending->publish(sample, generator_.output(sequence), finished);
    if (finished || request.pending->failed()) abort_sequence(sequence);
  }
}

void Engine::publish() {
  for (const ActiveRequest& request : active_) publish(request);
  close_finished();
}

void Engine::close_finished() {
  std::erase_if(active_, [this](const ActiveRequest& request) {
    const bool finished = request.pending->all_finished();
    if (finished) close(request);
    return finished;
  });
  update_stats();
}

void Engine::update_stats() {
  const inference::Scheduler& scheduler = generator_.scheduler();
  const std::lock_guard lock(mutex_);
  stats_.generated_tokens = generator_.generated_tokens();
  stats_.engine_steps = generator_.engine_steps();
  stats_.preemptions = scheduler.preemptions();
  stats_.running = scheduler.num_running();
  stats_.waiting = scheduler.num_waiting();
  stats_.free_kv_blocks = scheduler.free_kv_blocks();
  stats_.kv_blocks = options_.scheduler.kv_blocks;
  waiting_by_client_ = scheduler.waiting_by_client();
}

void Engine::fail_all(const std::exception_ptr& fault) {
  std::deque<ActiveRequest> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(new_requests_);
    clients_.clear();
  }
  for (ActiveRequest& request : active_) all.push_back(std::move(request));
  active_.clear();
  for (const ActiveRequest& request : all) request.pending->fail(fault);
}

}  // namespace sluice::serve

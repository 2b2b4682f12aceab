#include "inference/scheduler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::inference {

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options), pool_(options.kv_blocks) {
  for (int64_t slot = options.max_num_seqs; slot-- > 0;) free_slots_.push_back(slot);
}

void require_capacity(int64_t prompt_tokens, int64_t max_tokens, int64_t kv_blocks) {
  SLUICE_ASSERT(prompt_tokens > 0 && max_tokens > 0, "a request without tokens");
  // The last generated token is never an input.
  const int64_t needed = kv_blocks_for(prompt_tokens + max_tokens - 1);
  if (needed <= kv_blocks) return;
  throw base::InputError(base::text("a prompt of ", prompt_tokens, " tokens and ", max_tokens,
                                    " generated ones need ", needed * kKvBlockTokens,
                                    " tokens of KV cache, but it holds ", kv_blocks * kKvBlockTokens,
                                    ": generate fewer, or give the cache more memory"));
}

int64_t Scheduler::add(const Request& request) {
  uniform_steps_ = 0;
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  require_capacity(prompt_tokens, request.max_tokens, pool_.size());
  const int64_t first = total_sequences();
  for (int sample = 0; sample < request.samples; ++sample) {
    queues_.add(request.client, next_sequence_);
    sequences_[next_sequence_++] = {.tokens = request.prompt,
                                    .prompt_tokens = prompt_tokens,
                                    .max_length = prompt_tokens + request.max_tokens,
                                    .client = request.client,
                                    .first_sample = first,
                                    .prompt_logprobs = request.prompt_logprobs && sample == 0,
                                    .adapter = request.adapter};
  }
  return first;
}

// Blocks for the sequence's first `tokens` tokens; false, with nothing allocated: there are too few.
bool Scheduler::allocate(Sequence& sequence, int64_t tokens) {
  std::vector<int64_t>& blocks = sequence.kv_blocks;
  const int64_t missing = kv_blocks_for(tokens) - std::ssize(blocks);
  if (missing > pool_.num_free()) return false;
  for (int64_t i = 0; i < missing; ++i)
    blocks.push_back(
        pool_.allocate(blocks.empty() ? -1 : blocks.back(), kv_blocks_for(sequence.max_length - 1)));
  return true;
}

// The same for a sequence that is being admitted, with room for one token more where possible: without it the
// sequence would be preempted in the next step.
bool Scheduler::allocate_first(Sequence& sequence, int64_t tokens) {
  if (running_.empty()) return allocate(sequence, tokens);
  return has_room_for(sequence) &&
         allocate(sequence, std::max(tokens, std::min(tokens + 1, sequence.max_length - 1)));
}

// Shares the full blocks of the prompt with the request's first sample. The prompt's last token stays out:
// its logits are needed again.
void Scheduler::share_prompt(Sequence& sequence) {
  const auto found = sequences_.find(sequence.first_sample);
  if (found == sequences_.end() || &found->second == &sequence || found->second.state != State::kRunning)
    return;
  const Sequence& first = found->second;
  const int64_t full = std::min(first.computed_tokens, sequence.prompt_tokens - 1) / kKvBlockTokens;
  for (int64_t block = 0; block < full; ++block) {
    sequence.kv_blocks.push_back(first.kv_blocks[static_cast<size_t>(block)]);
    pool_.add_reference(sequence.kv_blocks.back());
  }
  sequence.shared_blocks = full;
  sequence.computed_tokens = full * kKvBlockTokens;
}

// Frees the sequence's blocks and its slot.
void Scheduler::release(Sequence& sequence) {
  for (const int64_t block : sequence.kv_blocks) pool_.release(block);
  sequence.kv_blocks.clear();
  sequence.computed_tokens = sequence.shared_blocks = 0;
  if (sequence.slot >= 0) free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
}

// Blocks that the sequence is expected to hold when it ends, without shared ones.
int64_t Scheduler::expected_blocks(const Sequence& sequence, int64_t running_tokens) const {
  const int64_t prompt = sequence.prompt_tokens;
  const int64_t end = prompt + expectation_.of(sequence.max_length - prompt, running_tokens) - 1;
  return std::max(kv_blocks_for(std::max(end, std::ssize(sequence.tokens))), std::ssize(sequence.kv_blocks)) -
         sequence.shared_blocks;
}

bool Scheduler::has_room_for(const Sequence& sequence) const {
  int64_t generated = 0;
  for (const int64_t running : running_)
    generated += std::ssize(at(running).tokens) - at(running).prompt_tokens;
  int64_t expected = expected_blocks(sequence, generated);
  for (const int64_t running : running_) expected += expected_blocks(at(running), generated);
  return expected <= pool_.size();
}

ScheduledTokens Scheduler::scheduled_tokens(int64_t index, int64_t end) {
  Sequence& sequence = at(index);
  const int64_t begin = sequence.computed_tokens;
  const int64_t scored =
      sequence.prompt_logprobs ? std::max<int64_t>(0, std::min(end, sequence.prompt_tokens - 1) - begin) : 0;
  sequence.computed_tokens = end;
  sequence.awaits_token = sequence.uncomputed_tokens() == 0;
  return {.sequence = index,
          .begin = begin,
          .end = end,
          .needs_sampling = sequence.awaits_token,
          .kv_blocks = sequence.kv_blocks,
          .slot = sequence.slot,
          .prompt_logprob_rows = scored,
          .adapter = sequence.adapter};
}

void Scheduler::add_tokens(int64_t index, int64_t tokens, StepDraft& step) {
  Sequence& sequence = at(index);
  step.scheduled.push_back(scheduled_tokens(index, sequence.computed_tokens + tokens));
  step.tokens += tokens;
  sequence.last_step = step_;
}

void Scheduler::preempt(int64_t index, std::vector<ScheduledTokens>& scheduled) {
  Sequence& sequence = at(index);
  const auto is_own = [index](const ScheduledTokens& each) { return each.sequence == index; };
  if (std::erase_if(scheduled, is_own) > 0) sequence.awaits_token = false;
  std::erase(running_, index);
  release(sequence);
  sequence.state = State::kWaiting;
  queues_.preempt(sequence.client, index);
  ++preemptions_;
}

void Scheduler::preempt_all() {
  std::vector<ScheduledTokens> none;
  while (!running_.empty()) preempt(running_.back(), none);
  uniform_steps_ = 0;
}

// The youngest sequence of the client with the most running ones.
int64_t Scheduler::next_to_preempt() const {
  const auto of_client = [this](int64_t sequence) { return queues_.running_of(at(sequence).client); };
  return *std::ranges::max_element(running_.rbegin(), running_.rend(), {}, of_client);
}

// Blocks for so many tokens of a running sequence, by preempting others. False: it was preempted itself.
bool Scheduler::make_room(int64_t sequence, int64_t tokens, StepDraft& step) {
  while (!allocate(at(sequence), tokens)) {
    const int64_t preempted = next_to_preempt();
    preempt(preempted, step.scheduled);
    if (preempted == sequence) return false;
  }
  return true;
}

// Preempts a sequence of the client with the most running ones, provided that it keeps at least as many as
// `client` has with one more.
bool Scheduler::preempt_for(int64_t client, StepDraft& step) {
  if (running_.empty()) return false;
  const int64_t other = next_to_preempt();
  if (queues_.running_of(at(other).client) < queues_.running_of(client) + 2) return false;
  preempt(other, step.scheduled);
  return true;
}

// One token of each running sequence whose prompt is computed.
void Scheduler::schedule_decodes(StepDraft& step) {
  const int64_t max_tokens = part_of_stage(options_.max_num_batched_tokens),
                max_sequences = part_of_stage(num_running());
  for (const int64_t index : std::vector(running_)) {
    if (std::ssize(step.scheduled) == max_sequences || step.tokens == max_tokens) return;
    const Sequence& sequence = at(index);
    if (sequence.state != State::kRunning || sequence.uncomputed_tokens() != 1) continue;
    if (make_room(index, sequence.computed_tokens + 1, step)) add_tokens(index, 1, step);
  }
}

// More of the prompts of the client's running sequences, until the step has `max_tokens` tokens.
void Scheduler::continue_prompts(int64_t client, int64_t max_tokens, StepDraft& step) {
  for (const int64_t index : std::vector(running_)) {
    const Sequence& sequence = at(index);
    if (sequence.client != client || sequence.state != State::kRunning || sequence.last_step == step_)
      continue;
    const int64_t tokens = std::min(sequence.uncomputed_tokens(), max_tokens - step.tokens);
    if (sequence.uncomputed_tokens() == 1 || tokens <= 0) continue;
    if (make_room(index, sequence.computed_tokens + tokens, step)) add_tokens(index, tokens, step);
  }
}

// A slot for one more sequence of the client, if need be by preempting.
bool Scheduler::find_slot(int64_t client, StepDraft& step) {
  const int64_t kept_free = queues_.running_of(client) > 0 ? options_.newcomer_slots : 0;
  while (num_running() >= options_.max_num_seqs - kept_free) {
    if (step.within || !preempt_for(client, step)) return false;
  }
  return true;
}

// Admits waiting sequences of the client, until the step has `max_tokens` tokens. False: one waits for room.
bool Scheduler::admit(int64_t client, int64_t max_tokens, StepDraft& step) {
  // A sequence admitted before the client that is short of room would be preempted for it.
  const bool other_waits = short_of_room_ && *short_of_room_ != client;
  if (other_waits && queues_.running_of(client) > queues_.running_of(*short_of_room_)) return true;
  while (queues_.waiting_of(client) > 0 && step.tokens < max_tokens) {
    const int64_t index = queues_.front(client);
    Sequence& sequence = at(index);
    if (sequence.awaits_token) return true;
    if (!find_slot(client, step)) return false;
    if (sequence.kv_blocks.empty() && options_.shares_prompts) share_prompt(sequence);
    const int64_t tokens = std::min(sequence.uncomputed_tokens(), max_tokens - step.tokens);
    if (!allocate_first(sequence, sequence.computed_tokens + tokens)) {
      release(sequence);  // shared blocks, too: the first sample may be preempted
      if (step.within || !preempt_for(client, step)) return false;
      continue;
    }
    queues_.start(client);
    sequence.state = State::kRunning;
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    running_.push_back(index);
    add_tokens(index, tokens, step);
  }
  return true;
}

// Clients with prompts to compute, the least served first.
std::vector<int64_t> Scheduler::clients_with_prompts() const {
  std::set<int64_t> unfinished_prompts;
  for (const int64_t index : running_) {
    const Sequence& sequence = at(index);
    if (sequence.last_step != step_ && sequence.uncomputed_tokens() > 1)
      unfinished_prompts.insert(sequence.client);
  }
  std::vector<int64_t> clients = queues_.least_served_first();
  std::erase_if(clients, [&](int64_t client) {
    return queues_.waiting_of(client) == 0 && !unfinished_prompts.contains(client);
  });
  return clients;
}

// Divides the rest of the token budget equally among clients, the least served first; then clients take what
// others left. No sequence is admitted before one of a client that was served less and waits for room.
void Scheduler::schedule_prompts(StepDraft& step) {
  const int64_t max_tokens = part_of_stage(options_.max_num_batched_tokens);
  const std::vector<int64_t> clients = clients_with_prompts();
  const bool several = clients.size() > 1;
  if (short_of_room_ && std::ranges::find(clients, *short_of_room_) == clients.end()) short_of_room_.reset();
  bool room = true;
  const auto take = [&](int64_t client, int64_t tokens) {
    continue_prompts(client, tokens, step);
    if (!room) return;
    room = admit(client, tokens, step);
    if (!room && several) short_of_room_ = client;
    if (room && short_of_room_ == client) short_of_room_.reset();
  };
  auto others = std::ssize(clients);
  for (const int64_t client : clients) {
    const int64_t part = cost::divide_up(max_tokens - step.tokens, others--);
    take(client, std::min(max_tokens, step.tokens + part));
  }
  for (size_t i = 0; several && i < clients.size(); ++i) take(clients[i], max_tokens);
}

// An engine step with newcomers' prompts alone, which does not take as long as one with everybody's tokens.
// False: there is no newcomer that can be admitted.
bool Scheduler::schedule_newcomers(StepDraft& step) {
  if (queues_.has_one_client() || running_.empty()) return false;
  std::vector<int64_t> clients = queues_.least_served_first();
  std::erase_if(clients, [&](int64_t client) {
    return queues_.waiting_of(client) == 0 || queues_.running_of(client) > 0;
  });
  const int64_t max_tokens = part_of_stage(options_.max_num_batched_tokens);
  auto others = std::ssize(clients);
  for (const int64_t client : clients)
    admit(client, step.tokens + cost::divide_up(max_tokens - step.tokens, others--), step);
  return !step.scheduled.empty();
}

// Counts the step's tokens as served to their clients; tokens that are computed anew count once.
void Scheduler::charge(const StepDraft& step) {
  for (const ScheduledTokens& scheduled : step.scheduled) {
    Sequence& sequence = at(scheduled.sequence);
    const int64_t charged = std::max(sequence.charged_tokens, scheduled.begin);
    if (scheduled.end > charged) queues_.charge(sequence.client, scheduled.end - charged);
    sequence.charged_tokens = std::max(charged, scheduled.end);
  }
}

std::vector<ScheduledTokens> Scheduler::schedule_within() {
  SLUICE_ASSERT(options_.stages == 1, "an engine step within those of several stages");
  if (had_step_within_) return {};
  StepDraft step{.within = true};
  ++step_;
  had_step_within_ = schedule_newcomers(step);
  charge(step);
  uniform_steps_ = 0;
  return std::move(step.scheduled);
}

std::vector<ScheduledTokens> Scheduler::schedule() {
  const int64_t preemptions_before = preemptions_, running_before = num_running();
  StepDraft step;
  had_step_within_ = false;
  ++step_;
  after_newcomers_ = !after_newcomers_ && schedule_newcomers(step);
  if (!after_newcomers_) {
    schedule_decodes(step);
    schedule_prompts(step);
  }
  charge(step);
  const auto awaits_token = [this](int64_t sequence) { return at(sequence).awaits_token; };
  SLUICE_ASSERT(
      !step.scheduled.empty() || std::ranges::any_of(running_, awaits_token) || all_waiting_await_tokens(),
      "sequences wait for blocks that no sequence holds");
  // While no sequence ends, a sequence that was not admitted now never will be: ever fewer blocks are free.
  const bool same_sequences = num_running() == running_before && preemptions_ == preemptions_before;
  const bool uniform = same_sequences && queues_.has_one_client() &&
                       step.tokens == std::ssize(step.scheduled) &&
                       std::ranges::all_of(running_, awaits_token);
  uniform_steps_ = uniform ? uniform_steps_ + 1 : 0;
  return std::move(step.scheduled);
}

bool Scheduler::all_waiting_await_tokens() const {
  return std::ranges::all_of(queues_.least_served_first(), [this](int64_t client) {
    return std::ranges::all_of(queues_.waiting_sequences_of(client),
                               [this](int64_t sequence) { return at(sequence).awaits_token; });
  });
}

void Scheduler::append_token(int64_t index, int64_t token, bool ends) {
  Sequence& sequence = at(index);
  sequence.awaits_token = false;
  sequence.tokens.push_back(token);
  if (ends || std::ssize(sequence.tokens) >= sequence.max_length) finish(index);
}

void Scheduler::abort(int64_t index) {
  Sequence& sequence = at(index);
  if (sequence.state == State::kFinished) return;
  sequence.awaits_token = false;
  finish(index);
}

void Scheduler::finish(int64_t index) {
  Sequence& sequence = at(index);
  const int64_t generated = std::ssize(sequence.tokens) - sequence.prompt_tokens;
  if (generated > 0) expectation_.add(generated);
  release(sequence);
  if (sequence.state == State::kWaiting) queues_.remove_waiting(sequence.client, index);
  if (sequence.state == State::kRunning) {
    std::erase(running_, index);
    queues_.finish_running(sequence.client);
  }
  sequence.state = State::kFinished;
  if (options_.stages > 1 || num_waiting() > 0) uniform_steps_ = 0;
}

int64_t Scheduler::uniform_engine_steps(int64_t most) const {
  if (uniform_steps_ < options_.stages) return 0;
  const auto fits = [&](int64_t rounds) {
    int64_t missing = 0;
    for (const int64_t index : running_) {
      const Sequence& sequence = at(index);
      missing += std::max<int64_t>(
          0, kv_blocks_for(sequence.computed_tokens + rounds) - std::ssize(sequence.kv_blocks));
    }
    return missing <= pool_.num_free();
  };
  if (fits(most)) return most;
  int64_t good = 0;
  while (most - good > 1) {
    const int64_t middle = good + (most - good) / 2;
    (fits(middle) ? good : most) = middle;
  }
  return good;
}

void Scheduler::advance_engine_steps(int64_t rounds, int64_t token) {
  for (const int64_t index : running_) {
    Sequence& sequence = at(index);
    allocate(sequence, sequence.computed_tokens + rounds);
    sequence.computed_tokens += rounds;
    sequence.tokens.insert(sequence.tokens.end(), static_cast<size_t>(rounds), token);
  }
}

}  // namespace sluice::inference

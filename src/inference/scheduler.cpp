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

void require_capacity(int64_t given, int64_t most_tokens, int64_t pages) {
  SLUICE_ASSERT(given > 0 && most_tokens > 0, "a request without tokens");
  // The last token said is never looked at again.
  const int64_t needed = kv_blocks_for(given + most_tokens - 1);
  if (needed <= pages) return;
  throw base::InputError(base::text("a prompt of ", given, " tokens and ", most_tokens, " to be said need ",
                                    needed * kKvBlockTokens, " tokens of cache, but it holds ",
                                    pages * kKvBlockTokens, ": say less, or give the cache more memory"));
}

int64_t Scheduler::add(const Request& request) {
  alike_ = 0;
  const auto given = static_cast<int64_t>(request.prompt.size());
  require_capacity(given, request.max_tokens, pool_.size());
  const int64_t most = given + request.max_tokens;
  const int64_t first = total_sequences();
  for (int sample = 0; sample < request.samples; ++sample) {
    const bool scored = request.prompt_logprobs && sample == 0;
    queues_.add(request.client, next_text_);
    texts_[next_text_++] = {.tokens = request.prompt,
                            .given = given,
                            .most = most,
                            .client = request.client,
                            .first = first,
                            .scored = scored,
                            .adapter = request.adapter};
  }
  return first;
}

bool Scheduler::hold(Text& text, int64_t tokens) {
  const int64_t more = kv_blocks_for(tokens) - static_cast<int64_t>(text.pages.size());
  if (more > pool_.num_free()) return false;
  for (int64_t i = 0; i < more; ++i)
    text.pages.push_back(
        pool_.allocate(text.pages.empty() ? -1 : text.pages.back(), kv_blocks_for(text.most - 1)));
  return true;
}

// Whole pages of what both were given, but for the last token: what the model makes of that must be known
// anew.
void Scheduler::share_prompt(Text& text) {
  const auto found = texts_.find(text.first);
  if (found == texts_.end() || &found->second == &text || found->second.state != State::kRunning) return;
  const Text& first = found->second;
  const int64_t whole = std::min(first.cached, text.given - 1) / kKvBlockTokens;
  for (int64_t page = 0; page < whole; ++page) {
    text.pages.push_back(first.pages[static_cast<size_t>(page)]);
    pool_.add_reference(text.pages.back());
  }
  text.shared = whole;
  text.cached = whole * kKvBlockTokens;
}

void Scheduler::give_back(Text& text) {
  for (const int64_t page : text.pages) pool_.release(page);
  text.pages.clear();
  text.cached = text.shared = 0;
  if (text.slot >= 0) free_slots_.push_back(text.slot);
  text.slot = -1;
}

// Of its own, until it ends.
int64_t Scheduler::expected_pages(const Text& text, int64_t under_way) const {
  const int64_t end = text.given + expectation_.of(text.most - text.given, under_way) - 1;
  return std::max(kv_blocks_for(std::max(end, std::ssize(text.tokens))), std::ssize(text.pages)) -
         text.shared;
}

bool Scheduler::has_room_for(const Text& text) const {
  int64_t said = 0;
  for (const int64_t running : running_) said += std::ssize(at(running).tokens) - at(running).given;
  int64_t expected = expected_pages(text, said);
  for (const int64_t running : running_) expected += expected_pages(at(running), said);
  return expected <= pool_.size();
}

ScheduledTokens Scheduler::piece_of(int64_t index, int64_t end) {
  Text& text = at(index);
  ScheduledTokens scheduled{
      .sequence = index,
      .begin = text.cached,
      .end = end,
      .needs_sampling = end == static_cast<int64_t>(text.tokens.size()),
      .kv_blocks = text.pages,
      .slot = text.slot,
      .prompt_logprob_rows =
          text.scored ? std::max<int64_t>(0, std::min(end, text.given - 1) - text.cached) : 0,
      .adapter = text.adapter};
  text.cached = end;
  text.awaited = scheduled.needs_sampling;
  return scheduled;
}

void Scheduler::put_off(int64_t index, std::vector<ScheduledTokens>& pieces) {
  if (std::erase_if(pieces, [&](const ScheduledTokens& scheduled) { return scheduled.sequence == index; }) >
      0)
    at(index).awaited = false;
  std::erase(running_, index);
  give_back(at(index));
  at(index).state = State::kWaiting;
  queues_.put_off(at(index).client, index);
  ++evictions_;
}

void Scheduler::put_off_all() {
  std::vector<ScheduledTokens> none;
  while (!running_.empty()) put_off(running_.back(), none);
  alike_ = 0;
}

// The youngest text of the client that has the most under way.
int64_t Scheduler::next_to_put_off() const {
  const auto crowd = [this](int64_t text) { return queues_.running_of(at(text).client); };
  return *std::ranges::max_element(running_.rbegin(), running_.rend(), {}, crowd);
}

// Pages for so many tokens of a text under way, by putting off others that are not in a pass under way yet;
// false: the text itself is put off.
bool Scheduler::make_room(int64_t text, int64_t tokens, std::vector<ScheduledTokens>& pieces) {
  while (!hold(at(text), tokens)) {
    const int64_t other = next_to_put_off();
    put_off(other, pieces);
    if (other == text) return false;
  }
  return true;
}

// Puts off a text of the client that has the most under way, if that still has no fewer than this client
// then.
bool Scheduler::make_way(int64_t client, std::vector<ScheduledTokens>& pieces) {
  if (running_.empty()) return false;
  const int64_t other = next_to_put_off();
  if (queues_.running_of(at(other).client) < queues_.running_of(client) + 2) return false;
  put_off(other, pieces);
  return true;
}

void Scheduler::add_piece(int64_t index, int64_t taken, DraftPass& pass) {
  Text& text = at(index);
  pass.pieces.push_back(piece_of(index, text.cached + taken));
  pass.rows += taken;
  text.pass = pass_;
}

void Scheduler::say_more(DraftPass& pass) {
  const int64_t most_rows = part_of_pass(options_.max_num_batched_tokens),
                most_texts = part_of_pass(num_running());
  for (const int64_t index : std::vector(running_)) {
    if (std::ssize(pass.pieces) == most_texts || pass.rows == most_rows) return;
    Text& text = at(index);
    if (text.state != State::kRunning || std::ssize(text.tokens) - text.cached != 1) continue;
    if (make_room(index, text.cached + 1, pass.pieces)) add_piece(index, 1, pass);
  }
}

void Scheduler::go_on(int64_t client, int64_t most_rows, DraftPass& pass) {
  for (const int64_t index : std::vector(running_)) {
    Text& text = at(index);
    const int64_t left = std::ssize(text.tokens) - text.cached;
    const int64_t taken = std::min(left, most_rows - pass.rows);
    if (text.client != client || text.state != State::kRunning || text.pass == pass_) continue;
    if (left == 1 || taken <= 0) continue;
    if (make_room(index, text.cached + taken, pass.pieces)) add_piece(index, taken, pass);
  }
}

// Takes the pages with which a text comes in; with room for the next token too, where it can be had: else it
// would be put off at once.
bool Scheduler::hold_first(Text& text, int64_t taken) {
  const int64_t wanted = std::min(text.cached + taken + 1, text.most - 1);
  const bool alone = running_.empty();
  return (alone || has_room_for(text)) &&
         hold(text, alone ? text.cached + taken : std::max(wanted, text.cached + taken));
}

bool Scheduler::find_seat(int64_t client, DraftPass& pass) {
  const int64_t kept = queues_.running_of(client) > 0 ? options_.newcomers : 0;
  while (num_running() >= options_.max_num_seqs - kept) {
    if (pass.within || !make_way(client, pass.pieces)) return false;
  }
  return true;
}

bool Scheduler::let_in(int64_t client, int64_t most_rows, DraftPass& pass) {
  // What it was let in before would be put off for the other.
  const bool other_waits = short_of_room_ && *short_of_room_ != client;
  if (other_waits && queues_.running_of(client) > queues_.running_of(*short_of_room_)) return true;
  while (queues_.waiting_of(client) > 0 && pass.rows < most_rows) {
    const int64_t index = queues_.first_of(client);
    Text& text = at(index);
    if (text.awaited) return true;
    if (!find_seat(client, pass)) return false;
    if (text.pages.empty() && options_.shares_prompts) share_prompt(text);
    const int64_t left = std::ssize(text.tokens) - text.cached;
    const int64_t taken = std::min(left, most_rows - pass.rows);
    if (!hold_first(text, taken)) {
      give_back(text);  // those it shares, too: their owner may be put off
      if (pass.within || !make_way(client, pass.pieces)) return false;
      continue;
    }
    queues_.begin(client);
    text.state = State::kRunning;
    text.slot = free_slots_.back();
    free_slots_.pop_back();
    running_.push_back(index);
    add_piece(index, taken, pass);
  }
  return true;
}

// Clients whose prompts wait to go through the model, the least served first.
std::vector<int64_t> Scheduler::clients_with_prompts() const {
  std::set<int64_t> going_on;
  for (const int64_t index : running_) {
    const Text& text = at(index);
    if (text.pass != pass_ && std::ssize(text.tokens) - text.cached > 1) going_on.insert(text.client);
  }
  std::vector<int64_t> clients = queues_.in_turn();
  std::erase_if(
      clients, [&](int64_t client) { return queues_.waiting_of(client) == 0 && !going_on.contains(client); });
  return clients;
}

// Each client has an equal part of the rows that are left, the least served first; and more where others
// leave theirs. Nobody comes in before one that was served less and waits for room.
void Scheduler::take_prompts(DraftPass& pass) {
  const int64_t most_rows = part_of_pass(options_.max_num_batched_tokens);
  const std::vector<int64_t> clients = clients_with_prompts();
  const bool several = clients.size() > 1;
  if (short_of_room_ && std::ranges::find(clients, *short_of_room_) == clients.end()) short_of_room_.reset();
  bool room = true;
  const auto take = [&](int64_t client, int64_t rows) {
    go_on(client, rows, pass);
    if (!room) return;
    room = let_in(client, rows, pass);
    if (!room && several) short_of_room_ = client;
    if (room && short_of_room_ == client) short_of_room_.reset();
  };
  auto others = std::ssize(clients);
  for (const int64_t client : clients)
    take(client, std::min(most_rows, pass.rows + cost::divide_up(most_rows - pass.rows, others--)));
  for (size_t i = 0; several && i < clients.size(); ++i) take(clients[i], most_rows);
}

// A client without any text under way does not wait for a pass with all the others' tokens: it has one of its
// own, as it would alone. True: there is such a pass.
bool Scheduler::take_newcomers(DraftPass& pass) {
  if (queues_.has_one_client() || running_.empty()) return false;
  std::vector<int64_t> clients = queues_.in_turn();
  std::erase_if(clients, [&](int64_t client) {
    return queues_.waiting_of(client) == 0 || queues_.running_of(client) > 0;
  });
  const int64_t most_rows = part_of_pass(options_.max_num_batched_tokens);
  auto others = std::ssize(clients);
  for (const int64_t client : clients)
    let_in(client, pass.rows + cost::divide_up(most_rows - pass.rows, others--), pass);
  return !pass.pieces.empty();
}

void Scheduler::count_served(const DraftPass& pass) {
  for (const ScheduledTokens& scheduled : pass.pieces) {
    Text& text = at(scheduled.sequence);
    const int64_t before = std::max(text.served, scheduled.begin);  // what comes back is not counted again
    if (scheduled.end > before) queues_.serve(text.client, scheduled.end - before);
    text.served = std::max(before, scheduled.end);
  }
}

std::vector<ScheduledTokens> Scheduler::next_within() {
  SLUICE_ASSERT(options_.stages == 1, "a pass within those of several stages");
  DraftPass pass{.within = true};
  if (had_pass_within_) return {};
  ++pass_;
  had_pass_within_ = take_newcomers(pass);
  count_served(pass);
  alike_ = 0;
  return std::move(pass.pieces);
}

std::vector<ScheduledTokens> Scheduler::next() {
  const int64_t evictions_before = evictions_, under_way_before = num_running();
  DraftPass pass;
  had_pass_within_ = false;
  ++pass_;
  after_newcomers_ = !after_newcomers_ && take_newcomers(pass);
  if (!after_newcomers_) {
    say_more(pass);
    take_prompts(pass);
  }
  count_served(pass);
  const auto is_awaited = [this](int64_t text) { return at(text).awaited; };
  SLUICE_ASSERT(
      !pass.pieces.empty() || std::ranges::any_of(running_, is_awaited) || all_waiting_are_awaited(),
      "texts wait for pages that none holds");
  // Who was not let in now will not be while nobody leaves: fewer and fewer pages are free.
  const bool same_texts = num_running() == under_way_before && evictions_ == evictions_before;
  const bool alike = same_texts && queues_.has_one_client() && pass.rows == std::ssize(pass.pieces) &&
                     std::ranges::all_of(running_, is_awaited);
  alike_ = alike ? alike_ + 1 : 0;
  return std::move(pass.pieces);
}

bool Scheduler::all_waiting_are_awaited() const {
  return std::ranges::all_of(queues_.in_turn(), [this](int64_t client) {
    return std::ranges::all_of(queues_.waiting_texts_of(client),
                               [this](int64_t text) { return at(text).awaited; });
  });
}

void Scheduler::append_token(int64_t index, int64_t token, bool ends) {
  Text& text = at(index);
  text.awaited = false;
  text.tokens.push_back(token);
  if (!ends && static_cast<int64_t>(text.tokens.size()) < text.most) return;
  finish(index);
}

void Scheduler::abort(int64_t index) {
  Text& text = at(index);
  if (text.state == State::kFinished) return;
  text.awaited = false;
  finish(index);
}

void Scheduler::finish(int64_t index) {
  Text& text = at(index);
  if (const int64_t said = std::ssize(text.tokens) - text.given; said > 0) expectation_.add(said);
  give_back(text);
  if (text.state == State::kWaiting) queues_.end_waiting(text.client, index);
  if (text.state == State::kRunning) {
    std::erase(running_, index);
    queues_.end_running(text.client);
  }
  text.state = State::kFinished;
  if (options_.stages > 1 || num_waiting() > 0) alike_ = 0;
}

int64_t Scheduler::uniform_engine_steps(int64_t most) const {
  if (alike_ < options_.stages) return 0;
  const auto fits = [&](int64_t rounds) {
    int64_t more = 0;
    for (const int64_t text : running_) {
      const Text& own = at(text);
      more += std::max<int64_t>(0, kv_blocks_for(own.cached + rounds) - std::ssize(own.pages));
    }
    return more <= pool_.num_free();
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
    Text& text = at(index);
    hold(text, text.cached + rounds);
    text.cached += rounds;
    text.tokens.insert(text.tokens.end(), static_cast<size_t>(rounds), token);
  }
}

}  // namespace sluice::inference

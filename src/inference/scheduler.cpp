#include "inference/scheduler.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::inference {
Scheduler::Scheduler(const SchedulerOptions& options) : options_(options), pool_(options.pages) {
  for (int64_t slot = options.most_texts; slot-- > 0;) free_slots_.push_back(slot);
}

void require_room(int64_t given, int64_t most_tokens, int64_t pages) {
  SLUICE_ASSERT(given > 0 && most_tokens > 0, "a request without tokens");
  // The last token said is never looked at again.
  const int64_t needed = pages_for(given + most_tokens - 1);
  if (needed <= pages) return;
  throw base::InputError(base::text("a prompt of ", given, " tokens and ", most_tokens, " to be said need ",
                                    needed * kPageTokens, " tokens of cache, but it holds ",
                                    pages * kPageTokens, ": say less, or give the cache more memory"));
}

int64_t Scheduler::add(const Request& request) {
  alike_ = 0;
  const auto given = static_cast<int64_t>(request.prompt.size());
  require_room(given, request.most_tokens, pool_.size());
  const int64_t most = given + request.most_tokens;
  const int64_t first = texts();
  for (int sample = 0; sample < request.samples; ++sample) {
    const bool scored = request.scored && sample == 0;
    waiting_.push_back(next_text_);
    texts_[next_text_++] = {
        .tokens = request.prompt, .given = given, .most = most, .first = first, .scored = scored};
  }
  return first;
}

bool Scheduler::hold(Text& text, int64_t tokens) {
  const int64_t more = pages_for(tokens) - static_cast<int64_t>(text.pages.size());
  if (more > pool_.free()) return false;
  for (int64_t i = 0; i < more; ++i)
    text.pages.push_back(pool_.take(text.pages.empty() ? -1 : text.pages.back(), pages_for(text.most - 1)));
  return true;
}

// Whole pages of what both were given, but for the last token: what the model makes of that must be known
// anew.
void Scheduler::share_prompt(Text& text) {
  const auto found = texts_.find(text.first);
  if (found == texts_.end() || &found->second == &text || found->second.state != State::kRunning) return;
  const Text& first = found->second;
  const int64_t whole = std::min(first.cached, text.given - 1) / kPageTokens;
  for (int64_t page = 0; page < whole; ++page) {
    text.pages.push_back(first.pages[static_cast<size_t>(page)]);
    pool_.share(text.pages.back());
  }
  text.shared = whole;
  text.cached = whole * kPageTokens;
}

void Scheduler::give_back(Text& text) {
  for (const int64_t page : text.pages) pool_.give_back(page);
  text.pages.clear();
  text.cached = text.shared = 0;
  if (text.slot >= 0) free_slots_.push_back(text.slot);
  text.slot = -1;
}

// Of its own, until it ends.
int64_t Scheduler::expected_pages(const Text& text, int64_t under_way) const {
  const int64_t end = text.given + expectation_.of(text.most - text.given, under_way) - 1;
  return std::max(pages_for(std::max(end, std::ssize(text.tokens))), std::ssize(text.pages)) - text.shared;
}

bool Scheduler::has_room_for(const Text& text) const {
  int64_t said = 0;
  for (const int64_t running : running_) said += std::ssize(at(running).tokens) - at(running).given;
  int64_t expected = expected_pages(text, said);
  for (const int64_t running : running_) expected += expected_pages(at(running), said);
  return expected <= pool_.size();
}

Piece Scheduler::piece_of(int64_t index, int64_t end) {
  Text& text = at(index);
  Piece piece{.text = index,
              .begin = text.cached,
              .end = end,
              .says = end == static_cast<int64_t>(text.tokens.size()),
              .pages = text.pages,
              .slot = text.slot,
              .scored = text.scored ? std::max<int64_t>(0, std::min(end, text.given - 1) - text.cached) : 0};
  text.cached = end;
  text.awaited = piece.says;
  return piece;
}

// Pages for so many tokens of a text under way, by putting off younger ones that are not in this pass yet;
// false: the text itself is the youngest.
bool Scheduler::make_room(int64_t text, int64_t tokens, std::vector<Piece>& pieces) {
  while (!hold(at(text), tokens)) {
    const int64_t youngest = running_.back();
    if (std::erase_if(pieces, [&](const Piece& piece) { return piece.text == youngest; }) > 0)
      at(youngest).awaited = false;
    running_.pop_back();
    give_back(at(youngest));
    at(youngest).state = State::kWaiting;
    waiting_.push_front(youngest);
    ++evictions_;
    if (youngest == text) return false;
  }
  return true;
}

std::vector<Piece> Scheduler::next() {
  const int64_t evictions_before = evictions_, under_way_before = under_way();
  const int64_t most_rows = part_of_pass(options_.most_rows), most_with_one_row = part_of_pass(under_way());
  std::vector<Piece> pieces;
  int64_t rows = 0;
  // Those that say something with one row more, then those that have not yet heard all they were given.
  const auto go_on = [&](bool with_one_row) {
    for (size_t i = 0; i < running_.size(); ++i) {
      const int64_t text = running_[i], cached = at(text).cached;
      const int64_t left = static_cast<int64_t>(at(text).tokens.size()) - cached;
      const int64_t taken = std::min(left, most_rows - rows);
      if ((left == 1) != with_one_row || taken <= 0) continue;
      if (with_one_row && std::ssize(pieces) == most_with_one_row) return;
      if (!make_room(text, cached + taken, pieces)) return;
      pieces.push_back(piece_of(text, cached + taken));
      rows += taken;
    }
  };
  go_on(true);
  go_on(false);
  while (!waiting_.empty() && rows < most_rows && under_way() < options_.most_texts) {
    const int64_t index = waiting_.front();
    Text& text = at(index);
    if (text.awaited) break;
    if (text.pages.empty() && options_.shares_prompts) share_prompt(text);
    const int64_t left = static_cast<int64_t>(text.tokens.size()) - text.cached;
    const int64_t taken = std::min(left, most_rows - rows);
    // Room for the next token too, where it can be had: else it would be put off at once.
    const int64_t wanted = std::min(text.cached + taken + 1, text.most - 1);
    const bool alone = running_.empty();
    if ((!alone && !has_room_for(text)) ||
        !hold(text, alone ? text.cached + taken : std::max(wanted, text.cached + taken))) {
      give_back(text);
      break;
    }
    waiting_.pop_front();
    text.state = State::kRunning;
    text.slot = free_slots_.back();
    free_slots_.pop_back();
    running_.push_back(index);
    pieces.push_back(piece_of(index, text.cached + taken));
    rows += taken;
  }
  const auto is_awaited = [this](int64_t text) { return at(text).awaited; };
  SLUICE_ASSERT(!pieces.empty() || std::ranges::any_of(running_, is_awaited) ||
                    std::ranges::all_of(waiting_, is_awaited),
                "texts wait for pages that none holds");
  // Who was not let in now will not be while nobody leaves: fewer and fewer pages are free.
  const bool same_texts = under_way() == under_way_before && evictions_ == evictions_before;
  const bool alike = same_texts && rows == std::ssize(pieces) && std::ranges::all_of(running_, is_awaited);
  alike_ = alike ? alike_ + 1 : 0;
  return pieces;
}

void Scheduler::said(int64_t index, int64_t token, bool ends) {
  Text& text = at(index);
  text.awaited = false;
  text.tokens.push_back(token);
  if (!ends && static_cast<int64_t>(text.tokens.size()) < text.most) return;
  finish(index);
}

void Scheduler::drop(int64_t index) {
  Text& text = at(index);
  if (text.state == State::kFinished) return;
  text.awaited = false;
  finish(index);
}

void Scheduler::finish(int64_t index) {
  Text& text = at(index);
  if (const int64_t said = std::ssize(text.tokens) - text.given; said > 0) expectation_.add(said);
  give_back(text);
  if (text.state == State::kWaiting) std::erase(waiting_, index);
  if (text.state == State::kRunning) std::erase(running_, index);
  text.state = State::kFinished;
  if (options_.stages > 1 || !waiting_.empty()) alike_ = 0;
}

int64_t Scheduler::alike(int64_t most) const {
  if (alike_ < options_.stages) return 0;
  const auto fits = [&](int64_t rounds) {
    int64_t more = 0;
    for (const int64_t text : running_) {
      const Text& own = at(text);
      more += std::max<int64_t>(0, pages_for(own.cached + rounds) - std::ssize(own.pages));
    }
    return more <= pool_.free();
  };
  if (fits(most)) return most;
  int64_t good = 0;
  while (most - good > 1) {
    const int64_t middle = good + (most - good) / 2;
    (fits(middle) ? good : most) = middle;
  }
  return good;
}

void Scheduler::pass_alike(int64_t rounds, int64_t token) {
  for (const int64_t index : running_) {
    Text& text = at(index);
    hold(text, text.cached + rounds);
    text.cached += rounds;
    text.tokens.insert(text.tokens.end(), static_cast<size_t>(rounds), token);
  }
}

}  // namespace sluice::inference

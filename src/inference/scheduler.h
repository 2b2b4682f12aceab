// Which tokens of which texts go through the model next: continuous batching (Yu et al., Orca, 2022) on pages
// (Kwon et al., PagedAttention, 2023). A pure function of what was asked and said, so that ranks that hear
// the same decide alike.
//
// Texts that are under way come first, a token each; then those that wait, the first asked first, by as much
// of what they were given as fits, where all that are under way are expected to find room until they end:
// each is taken to say as much as texts did so far. Where pages run out all the same the
// youngest text under way gives its own back and waits again, in front; what it has said is then given to it.
//
// Several clients share the model by tokens, not by requests (inference/client_queues.h). The least served
// client's prompts go through first, and each client has an equal part of a pass's rows for prompts. A client
// that has no text under way has a pass for itself, at most every other one, and one within each pass of the
// others, where seats and pages are free. A client with at least two texts more under way than one that waits
// puts one of them off for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cost/fixed_point.h"
#include "inference/client_queues.h"
#include "inference/kv_blocks.h"

namespace sluice::inference {

struct SchedulerOptions {
  int64_t kv_blocks = 0;                  // of the cache
  int64_t max_num_seqs = 64;              // under way at once
  int64_t newcomers = 0;                  // of these, kept for clients that have none under way
  int64_t max_num_batched_tokens = 2048;  // that go through the model at once, in all passes under way
  int stages = 1;                         // and as many passes under way
  // Whether what a request's samples begin with goes through the model once; states of recurrent layers are
  // kept as of a text's end alone.
  bool shares_prompts = true;
};

// How much texts say: the tokens that were said, by those under way too, over the texts that have ended,
// which is likeliest where texts end at random; and as if one had ended after a sixteenth of what it may say.
struct Expectation {
  int64_t finished_sequences = 0;  // that ended
  int64_t generated_tokens = 0;    // tokens of all of them
  void add(int64_t tokens) {
    ++finished_sequences;
    generated_tokens += tokens;
  }
  // Of a text that may say so many, while those under way have said so many.
  int64_t of(int64_t most, int64_t under_way) const {
    return std::min(most, (generated_tokens + under_way + most / 16) / (finished_sequences + 1));
  }
};

struct Request {
  std::vector<int64_t> prompt;   // token ids
  int64_t max_tokens = 0;        // that may be said
  int samples = 1;               // texts that begin with the prompt
  bool prompt_logprobs = false;  // the first wants to know what the model makes of the prompt itself
  int64_t client = 0;            // whose it is
  int adapter = -1;              // of those that the model has side by side; -1: none
};

// InputError when a cache of so many pages could not hold a text of so many tokens given, and so many said,
// alone. REQUIRES: at least one of each.
void require_capacity(int64_t given, int64_t most_tokens, int64_t pages);

// The next tokens of one text, [begin, end). Its keys and values from token 0 on lie in `pages`.
struct ScheduledTokens {
  int64_t sequence = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool needs_sampling = false;  // they end with the last one there is: what the model makes of it is the next
  std::vector<int64_t> kv_blocks;
  int64_t slot = 0;  // of the text while it is under way: below most_texts, nobody else's
  // Rows from `begin` on whose next token was given, and is to be scored.
  int64_t prompt_logprob_rows = 0;
  int adapter = -1;  // the request's
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // The first text of the request; its other samples follow. InputError when the cache could not hold one of
  // them alone. REQUIRES: a prompt of at least one token, at least one token to say.
  int64_t add(const Request& request);

  // What goes through the model next; empty: nothing, until more is told. Every text that says something must
  // be told before `stages` more calls: said(), or drop().
  std::vector<ScheduledTokens> next();
  // A pass within the last one of next(), which keeps its pages: prompts of clients without any text under
  // way. Empty: there are none, they find no room, or this pass has had one already. Its tokens are to be
  // told before those of the pass around it. REQUIRES: one stage.
  std::vector<ScheduledTokens> next_within();
  void append_token(int64_t text, int64_t token, bool ends);
  // Ends a text here, whose token may be awaited: nobody need tell it then.
  void abort(int64_t text);
  // Has all texts under way wait again, and what they have go through the model anew when they come back: its
  // parameters are others. REQUIRES: no pass is under way.
  void put_off_all();

  // How many rounds of passes, one for each stage, follow, up to `most`, that take a row of each text under
  // way and nothing else if none of them ends: nobody comes in or is put off. The last round was such a one.
  // 0: not known.
  int64_t uniform_engine_steps(int64_t most) const;
  // So many at once, as if `token` had been said in each by all. REQUIRES: rounds <= alike(rounds).
  void advance_engine_steps(int64_t rounds, int64_t token);
  // That it was there at all. REQUIRES: finished.
  void erase(int64_t text) { texts_.erase(text); }

  const std::vector<int64_t>& tokens(int64_t text) const { return at(text).tokens; }
  int64_t prompt_tokens(int64_t text) const { return at(text).given; }
  bool finished(int64_t text) const { return at(text).state == State::kFinished; }
  int64_t total_sequences() const { return next_text_; }  // that were ever asked for
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  const std::vector<int64_t>& running() const { return running_; }  // the oldest first
  int64_t num_waiting() const { return queues_.waiting(); }
  std::map<int64_t, int64_t> waiting_by_client() const { return queues_.waiting_by_client(); }
  int64_t free_kv_blocks() const { return pool_.num_free(); }
  int64_t preemptions() const { return evictions_; }

 private:
  enum class State : uint8_t { kWaiting, kRunning, kFinished };
  struct Text {
    std::vector<int64_t> tokens;  // given, then said
    int64_t given = 0;
    int64_t most = 0;  // tokens in all
    int64_t client = 0;
    int64_t served = 0;  // tokens that were counted as its client's
    int64_t pass = -1;   // the last one that it was in
    int64_t first = 0;   // the request's first text, whose prompt's pages the others may share
    int64_t cached = 0;  // tokens whose keys and values are there
    std::vector<int64_t> pages;
    int64_t shared = 0;  // of these, the first text's
    int64_t slot = -1;   // while it is under way
    bool scored = false;
    bool awaited = false;  // a pass under way says its next token
    int adapter = -1;
    State state = State::kWaiting;
  };

  const Text& at(int64_t text) const { return texts_.at(text); }
  Text& at(int64_t text) { return texts_.at(text); }
  // Whether the text has pages for so many tokens now; takes them where there are enough.
  bool hold(Text& text, int64_t tokens);
  void share_prompt(Text& text);
  int64_t expected_pages(const Text& text, int64_t under_way) const;
  bool has_room_for(const Text& text) const;
  void give_back(Text& text);
  // Of what all passes under way may have.
  int64_t part_of_pass(int64_t all) const { return cost::divide_up(all, options_.stages); }
  void finish(int64_t text);
  bool make_room(int64_t text, int64_t tokens, std::vector<ScheduledTokens>& pieces);
  void put_off(int64_t text, std::vector<ScheduledTokens>& pieces);
  int64_t next_to_put_off() const;
  bool all_waiting_are_awaited() const;
  bool make_way(int64_t client, std::vector<ScheduledTokens>& pieces);
  // The pass that is being made: texts that say something with one row more; and of a client, up to
  // `max_num_batched_tokens` in all, those that have not yet heard all they were given, and those that wait.
  // The latter false: one of them waits for room.
  struct DraftPass {
    std::vector<ScheduledTokens> pieces;
    int64_t rows = 0;
    bool within = false;  // another pass, whose texts cannot be put off
  };
  void say_more(DraftPass& pass);
  void go_on(int64_t client, int64_t most_rows, DraftPass& pass);
  bool let_in(int64_t client, int64_t most_rows, DraftPass& pass);
  bool hold_first(Text& text, int64_t taken);
  bool find_seat(int64_t client, DraftPass& pass);
  std::vector<int64_t> clients_with_prompts() const;
  void take_prompts(DraftPass& pass);
  bool take_newcomers(DraftPass& pass);
  void count_served(const DraftPass& pass);
  void add_piece(int64_t text, int64_t taken, DraftPass& pass);
  ScheduledTokens piece_of(int64_t text, int64_t end);

  SchedulerOptions options_;
  KvBlockPool pool_;
  std::unordered_map<int64_t, Text> texts_;
  int64_t next_text_ = 0;
  ClientQueues queues_;
  std::vector<int64_t> running_;  // the oldest first
  int64_t pass_ = 0;              // that is being made
  // The client that waits for room, or for its turn: no other comes to have more texts under way than it
  // meanwhile.
  std::optional<int64_t> short_of_room_;
  bool after_newcomers_ = false;     // the last pass was theirs, so that the next one is everybody's
  bool had_pass_within_ = false;     // the last pass
  std::vector<int64_t> free_slots_;  // the next one last
  int64_t evictions_ = 0;
  Expectation expectation_;
  // Passes since one was not as it will be again a round later, if no text ends.
  int64_t alike_ = 0;
};

}  // namespace sluice::inference

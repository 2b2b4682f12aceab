// One request from its body to its response: read, generated, and answered whole or as a stream. It never
// blocks a thread: the engine and the pool call it when there is news.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "serve/api.h"
#include "serve/engine.h"
#include "serve/fair_pool.h"
#include "serve/http_server.h"
#include "serve/incremental_detokenizer.h"

namespace sluice::serve {

class Answer;

// Decodes new tokens of all streams together: one call of the tokenizer for all of them, not one for each
// token of each. Thread-safe.
class Rounds {
 public:
  Rounds(FairPool& pool, const corpus::Tokenizer& tokenizer) : pool_(pool), tokenizer_(tokenizer) {}
  void add(std::shared_ptr<Answer> answer);
  // Reads and sends the news of these answers. Keeps the answers that have more by then.
  void advance(std::vector<std::shared_ptr<Answer>>& answers) const;

 private:
  void run();

  FairPool& pool_;
  const corpus::Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Answer>> waiting_;
  bool runs_ = false;
};

// Shared by all answers, and outlives them.
struct AnswerContext {
  Engine& engine;
  FairPool& pool;
  Rounds& rounds;
  const RequestReader& reader;
  int64_t context_length = 0;
  std::vector<int64_t> end_tokens;
  std::function<std::string()> fingerprint;              // the current parameters'
  std::function<void(const std::string& fault)> failed;  // called when a request fails by the server's fault
};

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(AnswerContext& context, std::string client, std::shared_ptr<Reply> reply, AnswerHead head)
      : context_(context), client_(std::move(client)), reply_(std::move(reply)), head_(std::move(head)) {}
  ~Answer() { leave(); }

  // Reads the request, on a thread of the pool, and has it generated.
  void begin(const std::string& body, Endpoint endpoint, uint64_t seed);

  // A round, on one thread at a time. read_round() reads the news, adds the tokens to decode and returns
  // their number; send_round() sends the decoded texts; ends_round() is false if there is more news already.
  size_t read_round(std::vector<corpus::Continuation>& wanted);
  void send_round(std::span<const std::string> decoded);
  void fail_round(const std::exception_ptr& fault) { refuse(fault); }
  bool ends_round();

 private:
  struct Shown {
    IncrementalDetokenizer text;
    std::string held;  // text that may be a tool call
    bool begun = false, ended = false;
  };

  void ask();
  int64_t max_tokens(const std::vector<int64_t>& prompt) const;
  void changed();
  void go_on();
  bool read_news();
  void send_whole();
  void send_news(bool all_ended, std::span<const std::string> decoded);
  void send_choice(Shown& shown, Choice choice);
  std::string part_to_show(Shown& shown, Choice& choice) const;
  void send_chunk(const base::Json& json);
  void refuse(const std::exception_ptr& fault);
  void leave();

  AnswerContext& context_;
  const std::string client_;
  const std::shared_ptr<Reply> reply_;
  AnswerHead head_;
  CompletionRequest request_;
  std::vector<std::shared_ptr<PendingRequest>> requests_;           // by prompt
  std::vector<std::vector<PendingRequest::SequenceOutput>> texts_;  // by prompt
  std::vector<Shown> shown_;                                        // by choice, for streams
  bool streaming_ = false;                                          // the response's head has been sent
  // Calls of changed() since the last round began; the first of them asks for the next round.
  std::atomic<int64_t> calls_ = 0;
  int64_t calls_of_round_ = 0;
  bool sends_ = false, all_ended_ = false;  // in this round
  std::atomic<bool> done_ = false;
};

}  // namespace sluice::serve

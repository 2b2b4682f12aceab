// Texts of many clients that wait for a head's numbers. Chooses
// each next batch by token counts alone: no clock, no thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serve/pending_texts.h"

namespace sluice::serve {

// One text of a request.
struct QueuedText {
  std::shared_ptr<PendingTexts> request;
  size_t index = 0;
  std::string client;
  const std::vector<int32_t>& tokens() const { return request->texts()[index]; }
};

class TextQueue {
 public:
  void add(const std::string& client, const std::shared_ptr<PendingTexts>& request);

  // Texts of at most so many tokens together, or one text. The next text is always that of the
  // client with the fewest tokens so far, so a client's share does not grow with its requests.
  // A new client starts where the others are. A client's own texts keep their order.
  std::vector<QueuedText> take_batch(int64_t max_tokens);

  // Removes texts whose clients have left, and returns the number of their requests.
  int64_t drop_aborted();
  // Restarts requests that have only some of their numbers.
  void begin_anew();
  // All requests, each once; the queue is empty afterwards.
  std::vector<std::shared_ptr<PendingTexts>> take_all();

  bool empty() const { return clients_.empty(); }
  int64_t texts() const { return texts_; }
  int64_t texts_of(const std::string& client) const;
  int64_t clients() const { return static_cast<int64_t>(clients_.size()); }

 private:
  struct Client {
    std::deque<QueuedText> texts;
    int64_t tokens = 0;  // served so far, plus the others' count when it came
  };
  std::map<std::string, Client>::iterator next_client();

  std::map<std::string, Client> clients_;  // clients with texts
  int64_t clock_ = 0;                      // tokens of the client that was served last, before it was
  int64_t texts_ = 0;
};

}  // namespace sluice::serve

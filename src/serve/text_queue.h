// Texts of many clients that wait for a head's numbers, and which of them the next batch has. It decides by
// tokens alone: no clock, no thread.
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

  // Texts of so many tokens together, or one text. Each is of the client that has had the fewest tokens, so
  // that a client's share does not grow with its requests; one that comes begins where the others are. A
  // client's own texts keep their order.
  std::vector<QueuedText> take_batch(int64_t max_tokens);

  // Removes texts whose clients have left, and returns how many requests these were.
  int64_t drop_aborted();
  // Requests that have numbers of some texts, and wait for the others, begin again.
  void begin_anew();
  // Requests, each once.
  std::vector<std::shared_ptr<PendingTexts>> take_all();

  bool empty() const { return clients_.empty(); }
  int64_t texts() const { return texts_; }
  int64_t texts_of(const std::string& client) const;
  int64_t clients() const { return static_cast<int64_t>(clients_.size()); }

 private:
  struct Client {
    std::deque<QueuedText> texts;
    int64_t tokens = 0;  // that it has had, and where the others were when it came
  };
  std::map<std::string, Client>::iterator next_client();

  std::map<std::string, Client> clients_;  // that have texts
  int64_t clock_ = 0;                      // tokens of the client that was served last, before it was
  int64_t texts_ = 0;
};

}  // namespace sluice::serve

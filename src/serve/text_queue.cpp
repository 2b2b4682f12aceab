#include "serve/text_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::serve {

void TextQueue::add(const std::string& client, const std::shared_ptr<PendingTexts>& request) {
  Client& own = clients_.try_emplace(client, Client{.texts = {}, .tokens = clock_}).first->second;
  for (size_t i = 0; i < request->texts().size(); ++i) own.texts.push_back({request, i, client});
  texts_ += std::ssize(request->texts());
}

std::map<std::string, TextQueue::Client>::iterator TextQueue::next_client() {
  return std::ranges::min_element(clients_, {}, [](const auto& each) { return each.second.tokens; });
}

std::vector<QueuedText> TextQueue::take_batch(int64_t max_tokens) {
  std::vector<QueuedText> batch;
  for (int64_t tokens = 0; !clients_.empty();) {
    const auto next = next_client();
    Client& own = next->second;
    const int64_t more = std::ssize(own.texts.front().tokens());
    if (!batch.empty() && tokens + more > max_tokens) break;
    tokens += more;
    clock_ = own.tokens;
    own.tokens += more;
    batch.push_back(std::move(own.texts.front()));
    own.texts.pop_front();
    --texts_;
    if (own.texts.empty()) clients_.erase(next);
  }
  return batch;
}

int64_t TextQueue::drop_aborted() {
  int64_t requests = 0;
  for (auto client = clients_.begin(); client != clients_.end();) {
    std::deque<QueuedText>& texts = client->second.texts;
    const PendingTexts* last = nullptr;
    texts_ -= static_cast<int64_t>(std::erase_if(texts, [&](const QueuedText& text) {
      const bool gone = text.request->aborted();
      if (gone && std::exchange(last, text.request.get()) != text.request.get()) ++requests;
      return gone;
    }));
    client = texts.empty() ? clients_.erase(client) : std::next(client);
  }
  return requests;
}

// A request's texts are consecutive, so texts before its first queued one have their numbers.
void TextQueue::begin_anew() {
  for (auto& [name, client] : clients_) {
    std::deque<QueuedText> anew;
    const PendingTexts* last = nullptr;
    for (QueuedText& text : client.texts) {
      if (std::exchange(last, text.request.get()) != text.request.get() && text.index > 0) {
        text.request->begin_anew();
        for (size_t i = 0; i < text.index; ++i) anew.push_back({text.request, i, name});
        texts_ += static_cast<int64_t>(text.index);
      }
      anew.push_back(std::move(text));
    }
    client.texts = std::move(anew);
  }
}

std::vector<std::shared_ptr<PendingTexts>> TextQueue::take_all() {
  std::vector<std::shared_ptr<PendingTexts>> all;
  for (auto& [name, client] : clients_) {
    for (QueuedText& text : client.texts) {
      if (all.empty() || all.back() != text.request) all.push_back(std::move(text.request));
    }
  }
  clients_.clear();
  texts_ = 0;
  return all;
}

int64_t TextQueue::texts_of(const std::string& client) const {
  const auto own = clients_.find(client);
  return own == clients_.end() ? 0 : std::ssize(own->second.texts);
}

}  // namespace sluice::serve

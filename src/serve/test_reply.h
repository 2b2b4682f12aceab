// Shared by this module's tests: a client that is answered in memory.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "serve/http_server.h"

namespace sluice::serve {

class MemoryReply final : public Reply {
 public:
  void send(Response response) override {
    close([&] { response_ = std::move(response); });
  }
  void begin(std::string content_type) override {
    const std::lock_guard lock(mutex_);
    response_.content_type = std::move(content_type);
  }
  void write(std::string piece) override {
    const std::lock_guard lock(mutex_);
    backlog_ += static_cast<int64_t>(piece.size());
    response_.body += piece;
    changed_state_.notify_all();
  }
  void end() override {
    close([] {});
  }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  int64_t backlog() const override {
    const std::lock_guard lock(mutex_);
    return reads_ ? 0 : backlog_;
  }
  void on_change(std::function<void()> changed) override {
    const std::lock_guard lock(mutex_);
    changed_ = std::move(changed);
  }

  // The client's side. A slow client reads nothing until it reads all; until then this many bytes wait
  // already.
  void be_slow(int64_t waiting) {
    const std::lock_guard lock(mutex_);
    reads_ = false;
    backlog_ = waiting;
  }
  void read_all() {
    std::function<void()> changed;
    {
      const std::lock_guard lock(mutex_);
      reads_ = true;
      changed = changed_;
    }
    changed();
  }
  void leave() {
    std::function<void()> changed;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      changed = std::exchange(changed_, {});
    }
    changed();
  }
  // The response once it is whole.
  const Response& response() {
    std::unique_lock lock(mutex_);
    changed_state_.wait(lock, [this] { return ended_; });
    return response_;
  }
  base::Json json() { return base::Json::parse(response().body); }
  // The events of a whole stream, without the [DONE] at its end.
  std::vector<base::Json> events() {
    std::vector<base::Json> events;
    std::string_view rest = response().body;
    while (rest.starts_with("data: ")) {
      const size_t end = rest.find("\n\n");
      const std::string_view data = rest.substr(6, end - 6);
      if (data != "[DONE]") events.push_back(base::Json::parse(data));
      rest.remove_prefix(end + 2);
    }
    return events;
  }
  bool is_done() { return response().body.ends_with("data: [DONE]\n\n"); }
  // Blocks until `bytes` bytes of a stream were written.
  void wait_for(size_t bytes) {
    std::unique_lock lock(mutex_);
    changed_state_.wait(lock, [&] { return response_.body.size() >= bytes; });
  }
  // Bytes written so far.
  size_t written() {
    const std::lock_guard lock(mutex_);
    return response_.body.size();
  }

 private:
  // The last of what an answer sends; then it is no longer told of changes, and may end.
  template <typename Change>
  void close(Change change) {
    std::function<void()> changed;
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(ended_) << "a second end of " << response_.body;
    change();
    ended_ = true;
    changed = std::exchange(changed_, {});
    changed_state_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_state_;
  Response response_;
  std::function<void()> changed_;
  bool reads_ = true, gone_ = false, ended_ = false;
  int64_t backlog_ = 0;
};

// The text of a stream's choice: completions' and chats'.
inline std::string text_of(const std::vector<base::Json>& events, int index = 0) {
  std::string text;
  for (const base::Json& event : events) {
    for (const base::Json& choice : event.at("choices")) {
      if (choice.at("index") != index) continue;
      text += choice.contains("text") ? choice.at("text").get<std::string>()
                                      : choice.at("delta").value("content", "");
    }
  }
  return text;
}

}  // namespace sluice::serve

// Things that take long to make and serve all threads: each is made once for its key.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::ops {

// Thread-safe.
template <typename Key, typename Thing>
class MadeAhead {
 public:
  using Made = std::shared_ptr<Thing>;  // null: there is none for the key, which is remembered
  using Make = std::function<Made(const Key&)>;
  explicit MadeAhead(Make make) : make_(std::move(make)) {}

  // Makes the key's thing at its first call, on the calling thread; others wait for it. An exception of the
  // maker reaches all of them.
  Made get(const Key& key) {
    std::promise<Made> promise;
    std::shared_future<Made> made;
    bool is_new = false;
    {
      const std::lock_guard lock(mutex_);
      const auto found = made_.find(key);
      is_new = found == made_.end();
      made = is_new ? made_.emplace(key, promise.get_future().share()).first->second : found->second;
    }
    if (is_new) {
      try {
        promise.set_value(make_(key));
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }
    return made.get();
  }

  bool has(const Key& key) const {
    const std::lock_guard lock(mutex_);
    return made_.contains(key);
  }

  // Makes all that are missing, on so many threads, and returns when they are made. Each thread calls `begin`
  // before its first and `end` behind its last. What one maker throws stays with its key.
  void make_all(const std::vector<Key>& keys, int threads, const std::function<void()>& begin,
                const std::function<void()>& end) {
    std::atomic<size_t> next{0};
    std::vector<std::jthread> makers;
    const auto most = std::min(static_cast<size_t>(std::max(threads, 1)), keys.size());
    for (size_t i = 0; i < most; ++i) {
      makers.emplace_back([&] {
        begin();
        for (size_t key = next++; key < keys.size(); key = next++) {
          try {
            get(keys[key]);
          } catch (...) {  // get() throws it again to who asks for the key
          }
        }
        end();
      });
    }
  }

 private:
  Make make_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_future<Made>> made_;
};

}  // namespace sluice::ops

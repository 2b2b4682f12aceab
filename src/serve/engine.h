// Texts for many askers at once: one thread that owns the generator, and conversations that others wait on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "generate/company.h"
#include "generate/generator.h"

namespace sluice::serve {

// What one asker gets: the texts behind one prompt, while they are said.
class Conversation {
 public:
  struct Text {
    generate::Said said;
    bool finished = false;
  };

  Conversation(inference::Request request, generate::Manner manner);

  // The asker's side. Waits for something that the caller has not seen (`seen` of its last call, 0 at first),
  // and returns how much there is; the same as `seen` where all texts have ended. Throws base::RunError when
  // they could not be said.
  int64_t wait(int64_t seen);
  // As of the last wait().
  const std::vector<Text>& texts() const { return shown_; }
  bool finished() const;
  void leave() { left_ = true; }  // nobody waits any more

  // The speaker's side.
  const inference::Request& request() const { return request_; }
  const generate::Manner& manner() const { return manner_; }
  bool left() const { return left_; }
  bool ended(int sample) const { return texts_[static_cast<size_t>(sample)].finished; }
  bool all_ended() const;
  // Shows a text as it is now, if there is more of it.
  void show(int sample, const generate::Said& said, bool finished);
  void fail(const std::string& fault);

 private:
  const inference::Request request_;
  const generate::Manner manner_;
  std::atomic<bool> left_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Text> texts_;  // the speaker's
  int64_t version_ = 0;
  std::string fault_;
  std::vector<Text> shown_;  // the asker's
};

struct EngineOptions {
  inference::SchedulerOptions scheduler;
  std::vector<base::Interval> never;      // rows of the vocabulary that are no token
  int64_t most_waiting = 256;             // conversations that have not begun
  comm::Communicator* company = nullptr;  // borrowed; of the ranks that have the model, which it leads
};

// What it does, for whoever watches.
struct EngineFigures {
  int64_t conversations = 0;  // that were ever taken
  int64_t refused = 0;        // for want of room
  int64_t left = 0;           // by their askers, before the end
  int64_t spoken_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t passes = 0;
  int64_t evictions = 0;
  int64_t under_way = 0;  // texts
  int64_t waiting = 0;
  int64_t free_pages = 0;
  int64_t pages = 0;
};

class Engine {
 public:
  // The decoder and the company must outlive it.
  Engine(const generate::Decoder& decoder, const EngineOptions& options);
  // Ends all conversations with a fault.
  ~Engine();

  // Null: as many wait already as may. InputError when no cache could hold it; RunError once the engine has
  // failed.
  std::shared_ptr<Conversation> ask(inference::Request request, generate::Manner manner);

  // Runs `action` on the engine's thread when no text is under way: those that are end first, and whoever
  // asks meanwhile waits. Returns when it has run, and throws what it threw; false when the engine ends
  // before. The others of its company, where it has one, are told to take `others` at that moment.
  bool between_texts(const std::function<void()>& action, const std::string& others = "");

  EngineFigures figures() const;
  // Why nothing is said any more, or "".
  std::string fault() const;

 private:
  // One that is being said.
  struct Open {
    std::shared_ptr<Conversation> conversation;
    int64_t first = 0;  // of its texts
  };

  void run();
  bool wait_until_asked();
  void drop(int64_t text);
  void act();
  void take_new();
  void drop_left();
  void publish();
  void fail(const std::string& fault);

  EngineOptions options_;
  generate::Generator generator_;
  generate::Company company_;
  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<std::shared_ptr<Conversation>> new_;
  std::vector<Open> open_;  // the thread's own
  EngineFigures figures_;
  std::string fault_;
  bool stopping_ = false;
  const std::function<void()>* action_ = nullptr;  // that waits for texts to end
  std::string others_take_;                        // with it
  std::exception_ptr action_fault_;
  std::condition_variable acted_;
  std::thread thread_;
};

}  // namespace sluice::serve

// Text generation for many clients at once: one thread that owns the generator, and requests that others wait
// for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "generate/followers.h"
#include "generate/generator.h"
#include "serve/request_engine.h"

namespace sluice::serve {

// One prompt's texts, while they are generated. Thread-safe.
class PendingRequest {
 public:
  struct SequenceOutput {
    generate::Output output;
    bool finished = false;
  };
  // kTokens: it wants to hear of each token. kEnd: of the end of all its texts alone.
  enum class News : uint8_t { kTokens, kEnd };

  // `changed` is called on the engine's thread, and must not take long; also when it fails.
  PendingRequest(inference::Request request, generate::SamplingParams sampling_params, News news,
                 std::function<void()> changed);

  // The client's side. Adds what is new to `texts`, whose first call has an empty list; true: all texts have
  // ended. Throws Unavailable, or RunError where this request alone has failed.
  bool read(std::vector<SequenceOutput>& texts);
  void abort() { left_ = true; }  // nobody waits any more

  // The engine's side.
  const inference::Request& request() const { return request_; }
  const generate::SamplingParams& sampling_params() const { return sampling_params_; }
  bool aborted() const { return left_; }
  bool sample_finished(int sample) const { return texts_[static_cast<size_t>(sample)].finished; }
  bool all_finished() const;
  bool failed() const { return static_cast<bool>(fault_); }
  // Shows a text as it is now, if there is more of it.
  void publish(int sample, const generate::Output& output, bool finished);
  void fail(std::exception_ptr fault);
  // Whether its texts may begin again, as nobody has seen anything of them; then they are as at first. A few
  // times, so that it comes to an end where parameters come often.
  bool begin_again();

 private:
  const inference::Request request_;
  const generate::SamplingParams sampling_params_;
  const News news_;
  const std::function<void()> changed_;
  std::atomic<bool> left_ = false;
  std::mutex mutex_;
  std::vector<SequenceOutput> texts_;
  std::exception_ptr fault_;
  int begun_again_ = 0;
};

struct EngineOptions {
  inference::SchedulerOptions scheduler;
  std::vector<base::Interval> never;        // rows of the vocabulary that are no token
  int64_t max_queued_requests = 4096;       // texts that have not begun
  int64_t most_waiting_of_client = 2048;    // of one client
  comm::Communicator* followers = nullptr;  // borrowed; of the ranks that have the model, which it leads
};

class Engine final : public RequestEngine {
 public:
  // The decoder and the company must outlive it.
  Engine(const generate::Decoder& decoder, const EngineOptions& options);
  // Ends all conversations as stop() does.
  ~Engine() override;

  // Null: as many texts wait already as may, in all or of this client. InputError when no cache could hold
  // it, or its texts are more than may ever wait; Unavailable once the engine has ended.
  std::shared_ptr<PendingRequest> add_request(const std::string& client, inference::Request request,
                                              generate::SamplingParams sampling_params,
                                              PendingRequest::News news, std::function<void()> changed);

  // Requests that want to hear of the end alone begin again; texts of others go on with the new parameters:
  // what they have so far goes through the model anew.
  bool between_steps(const std::function<void()>& action, const std::string& others) override;

  void stop(const std::string& why) override;
  EngineStats stats() const override;
  std::string fault() const override;
  bool idle() const;  // no conversation is waiting or under way

 private:
  // A conversation under way.
  struct Open {
    std::shared_ptr<PendingRequest> conversation;
    int64_t first = 0;  // of its texts
    std::string client;
  };
  // A client as the scheduler knows it, and what it has here.
  struct Client {
    int64_t number = 0;
    int64_t conversations = 0;
    int64_t new_texts = 0;  // that the scheduler has not heard of
  };

  void run();
  bool wait_until_asked();
  void drop(int64_t text);
  void act();
  void begin_anew();
  void take_new();
  bool begin(Open& open, int64_t client);
  void drop_left();
  void publish();
  void show(const Open& open);
  void close_ended();
  void let_newcomers_through();
  void count();
  void close(const Open& open);
  void fail(const std::exception_ptr& fault);

  EngineOptions options_;
  generate::Generator generator_;
  generate::Followers followers_;
  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<Open> new_;
  std::map<std::string, Client> clients_;
  int64_t next_client_ = 0;
  std::vector<Open> open_;                 // the thread's own
  std::map<int64_t, int64_t> waiting_of_;  // by client's number, as of the last step
  EngineStats figures_;
  std::string fault_;
  std::string stopped_ = "the server was stopped";
  bool stopping_ = false;
  bool ended_ = false;                             // nothing is called any more
  const std::function<void()>* action_ = nullptr;  // for between two steps
  std::string others_take_;                        // with it
  std::exception_ptr action_fault_;
  std::condition_variable acted_;
  std::thread thread_;
};

}  // namespace sluice::serve

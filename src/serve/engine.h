// Text generation for many clients. One thread owns the generator and runs
// its engine steps; other threads add requests and read their outputs.
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

// A request of one prompt and its samples' outputs while they are generated. Thread-safe.
class PendingRequest {
 public:
  struct SequenceOutput {
    generate::Output output;
    bool finished = false;
  };
  // kTokens: news is each token. kEnd: news is only the end of all samples.
  enum class News : uint8_t { kTokens, kEnd };

  // `changed` is called on the engine's thread if there
  // is news or the request fails. It must return quickly.
  PendingRequest(inference::Request request, generate::SamplingParams sampling_params, News news,
                 std::function<void()> changed);

  // The client's side. Adds the news to `outputs`, by sample; the first call gets an empty list. True: all
  // samples have ended. Throws Unavailable, or RunError if this request alone has failed.
  bool read(std::vector<SequenceOutput>& outputs);
  void abort() { aborted_ = true; }  // the client has left

  // The engine's side.
  const inference::Request& request() const { return request_; }
  const generate::SamplingParams& sampling_params() const { return sampling_params_; }
  bool aborted() const { return aborted_; }
  bool sample_finished(int sample) const { return outputs_[static_cast<size_t>(sample)].finished; }
  bool all_finished() const;
  bool failed() const { return static_cast<bool>(fault_); }
  // Stores the sample's output as it is now, if it has grown.
  void publish(int sample, const generate::Output& output, bool finished);
  void fail(std::exception_ptr fault);
  // Clears the outputs so that they can be generated anew. False if the client has seen some, or if the
  // request was restarted a few times already: frequent changes of parameters must not delay it for ever.
  bool restart();

 private:
  const inference::Request request_;
  const generate::SamplingParams sampling_params_;
  const News news_;
  const std::function<void()> changed_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::vector<SequenceOutput> outputs_;
  std::exception_ptr fault_;
  int restarts_ = 0;
};

struct EngineOptions {
  inference::SchedulerOptions scheduler;
  std::vector<base::Interval> never;   // rows of the vocabulary that are no tokens
  int64_t max_queued_requests = 4096;  // waiting sequences
  int64_t max_queued_requests_of_client = 2048;
  comm::Communicator* followers = nullptr;  // borrowed; the model's ranks, which this engine leads
};

class Engine final : public RequestEngine {
 public:
  // The decoder and the followers' communicator must outlive the engine.
  Engine(const generate::Decoder& decoder, const EngineOptions& options);
  // Ends all requests, as stop() does.
  ~Engine() override;

  // Null: the queue is full, in all or for this client. InputError if no cache
  // can hold a sequence of the request. Unavailable once the engine has ended.
  std::shared_ptr<PendingRequest> add_request(const std::string& client, inference::Request request,
                                              generate::SamplingParams sampling_params,
                                              PendingRequest::News news, std::function<void()> changed);

  // Requests whose clients wait only for the end are generated anew with the new parameters. Other
  // clients' sequences go on: their tokens so far are computed anew with the new parameters.
  bool between_steps(const std::function<void()>& action, const std::string& message) override;

  void stop(const std::string& why) override;
  EngineStats stats() const override;
  std::string fault() const override;
  bool idle() const;  // no request is waiting or running

 private:
  struct ActiveRequest {
    std::shared_ptr<PendingRequest> pending;
    int64_t first_sequence = 0;
    std::string client;
    int64_t end_sequence() const { return first_sequence + pending->request().samples; }
  };
  struct Client {
    int64_t number = 0;  // its number in the scheduler
    int64_t requests = 0;
    int64_t new_sequences = 0;  // not yet known to the scheduler
  };

  void run();
  bool wait_for_work();
  void run_action();
  void restart_requests();
  void take_new_requests();
  bool start(ActiveRequest& request, int64_t client);
  void drop_aborted();
  void abort_sequence(int64_t sequence);
  void step_within_for_newcomers();
  void publish();
  void publish(const ActiveRequest& request);
  void close_finished();
  void close(const ActiveRequest& request);
  void update_stats();
  void fail_all(const std::exception_ptr& fault);

  EngineOptions options_;
  // Used by the engine's thread only.
  generate::Generator generator_;
  generate::Followers followers_;
  std::vector<ActiveRequest> active_;

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable work_came_;
  std::deque<ActiveRequest> new_requests_;
  std::map<std::string, Client> clients_;
  int64_t next_client_ = 0;
  std::map<int64_t, int64_t> waiting_by_client_;  // sequences by client's number, as of the last step
  EngineStats stats_;
  std::string fault_;
  std::string stopped_ = "the server was stopped";
  bool stopping_ = false;
  bool ended_ = false;                             // no callback is called any more
  const std::function<void()>* action_ = nullptr;  // between_steps()' argument
  std::string message_;                            // between_steps()' argument
  std::exception_ptr action_fault_;
  std::condition_variable action_done_;
  std::thread thread_;
};

}  // namespace sluice::serve

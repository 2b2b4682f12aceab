#include "inference/engine_steps.h"

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace sluice::inference {
namespace {

constexpr int64_t kToken = 0;  // stands for any generated token

class Replay {
 public:
  Replay(std::span<const RequestLengths> load, const SchedulerOptions& options, int64_t window)
      : scheduler_(options), window_(window), sampling_(static_cast<size_t>(options.stages)) {
    for (const RequestLengths& request : load) {
      scheduler_.add({std::vector<int64_t>(static_cast<size_t>(request.prompt), kToken), request.max_tokens,
                      static_cast<int>(request.output_lens.size())});
      for (const int64_t output : request.output_lens) {
        SLUICE_ASSERT(output >= 1 && output <= request.max_tokens, "an output longer than max_tokens");
        end_.push_back(request.prompt + output);
      }
    }
  }

  EngineSteps run() {
    while (add_uniform_steps() || add_step()) {
    }
    result_.preemptions = scheduler_.preemptions();
    return std::move(result_);
  }

 private:
  int64_t tokens_of(int64_t sequence) const { return std::ssize(scheduler_.tokens(sequence)); }
  int64_t end_of(int64_t sequence) const { return end_[static_cast<size_t>(sequence)]; }

  // False: all sequences have ended.
  bool add_step() {
    sampling_.pop_back();
    std::vector<int64_t>& sampling = sampling_.emplace_front();
    cost::DecodeWork work;
    for (const ScheduledTokens& scheduled : scheduler_.schedule()) {
      work.add(scheduled.begin, scheduled.end, scheduled.needs_sampling, window_);
      if (scheduled.needs_sampling) sampling.push_back(scheduled.sequence);
    }
    if (work.rows == 0 && std::ranges::all_of(sampling_, &std::vector<int64_t>::empty)) return false;
    add(work);
    std::erase_if(sampling_.back(), [this](int64_t sequence) {
      const bool ends = tokens_of(sequence) + 1 == end_of(sequence);
      scheduler_.append_token(sequence, kToken, ends);
      return ends;
    });
    return true;
  }

  // Adds the uniform rounds until the first sequence ends. False: there are none.
  bool add_uniform_steps() {
    int64_t rounds = INT64_MAX;
    for (const std::vector<int64_t>& sampling : sampling_) {
      const int64_t awaited = &sampling == &sampling_.back() ? 0 : 1;
      for (const int64_t sequence : sampling)
        rounds = std::min(rounds, end_of(sequence) - tokens_of(sequence) - awaited);
    }
    rounds = scheduler_.running().empty() ? 0 : scheduler_.uniform_engine_steps(rounds);
    if (rounds == 0) return false;
    for (auto sampling = sampling_.rbegin(); sampling != sampling_.rend(); ++sampling) {
      cost::DecodeWork work{.engine_steps = rounds};
      const int64_t appended = sampling == sampling_.rbegin() ? 1 : 0;
      for (const int64_t sequence : *sampling) work.add_one_each(tokens_of(sequence) - appended, window_);
      add(work);
    }
    scheduler_.advance_engine_steps(rounds, kToken);
    std::erase_if(sampling_.back(), [this](int64_t sequence) {
      const bool ends = tokens_of(sequence) == end_of(sequence);
      if (ends) scheduler_.abort(sequence);
      return ends;
    });
    return true;
  }

  void add(const cost::DecodeWork& work) {
    if (work.rows > 0) result_.count += work.engine_steps;
    result_.work.push_back(work);
  }

  Scheduler scheduler_;
  int64_t window_;
  std::vector<int64_t> end_;  // by sequence: prompt and output tokens
  // By stage: the sequences that await a token of the step that the stage computes. Tokens of the last
  // stage's are appended already.
  std::deque<std::vector<int64_t>> sampling_;
  EngineSteps result_;
};

}  // namespace

EngineSteps engine_steps_of(std::span<const RequestLengths> load, const SchedulerOptions& options,
                            int64_t window) {
  return Replay(load, options, window).run();
}

}  // namespace sluice::inference

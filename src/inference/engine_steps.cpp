#include "inference/engine_steps.h"

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace sluice::inference {
namespace {

constexpr int64_t kToken = 0;  // whatever is said

class Replay {
 public:
  Replay(std::span<const RequestLengths> load, const SchedulerOptions& options, int64_t window)
      : scheduler_(options), window_(window), saying_(static_cast<size_t>(options.stages)) {
    for (const RequestLengths& request : load) {
      scheduler_.add({std::vector<int64_t>(static_cast<size_t>(request.prompt), kToken), request.max_tokens,
                      static_cast<int>(request.output_lens.size())});
      for (const int64_t said : request.output_lens) {
        SLUICE_ASSERT(said >= 1 && said <= request.max_tokens, "a text says what it may not");
        end_.push_back(request.prompt + said);
      }
    }
  }

  EngineSteps run() {
    while (pass_alike() || pass()) {
    }
    result_.preemptions = scheduler_.preemptions();
    return std::move(result_);
  }

 private:
  int64_t tokens_of(int64_t text) const { return std::ssize(scheduler_.tokens(text)); }
  int64_t end_of(int64_t text) const { return end_[static_cast<size_t>(text)]; }

  // False: all texts have ended.
  bool pass() {
    saying_.pop_back();
    std::vector<int64_t>& saying = saying_.emplace_front();
    cost::DecodeWork work;
    for (const ScheduledTokens& scheduled : scheduler_.next()) {
      work.add(scheduled.begin, scheduled.end, scheduled.needs_sampling, window_);
      if (scheduled.needs_sampling) saying.push_back(scheduled.sequence);
    }
    const auto nothing = [](const std::vector<int64_t>& texts) { return texts.empty(); };
    if (work.rows == 0 && std::ranges::all_of(saying_, nothing)) return false;
    add(work);
    std::erase_if(saying_.back(), [this](int64_t text) {
      const bool ends = tokens_of(text) + 1 == end_of(text);
      scheduler_.append_token(text, kToken, ends);
      return ends;
    });
    return true;
  }

  // As many rounds as there are until a text ends, at its end; false: none.
  bool pass_alike() {
    int64_t rounds = INT64_MAX;
    for (const std::vector<int64_t>& saying : saying_) {
      const int64_t awaited = &saying == &saying_.back() ? 0 : 1;
      for (const int64_t text : saying) rounds = std::min(rounds, end_of(text) - tokens_of(text) - awaited);
    }
    rounds = scheduler_.running().empty() ? 0 : scheduler_.uniform_engine_steps(rounds);
    if (rounds == 0) return false;
    for (auto saying = saying_.rbegin(); saying != saying_.rend(); ++saying) {
      cost::DecodeWork work{.engine_steps = rounds};
      const int64_t said = saying == saying_.rbegin() ? 1 : 0;
      for (const int64_t text : *saying) work.add_one_each(tokens_of(text) - said, window_);
      add(work);
    }
    scheduler_.advance_engine_steps(rounds, kToken);
    std::erase_if(saying_.back(), [this](int64_t text) {
      const bool ends = tokens_of(text) == end_of(text);
      if (ends) scheduler_.abort(text);
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
  std::vector<int64_t> end_;                 // tokens that a text has in the end, by text
  std::deque<std::vector<int64_t>> saying_;  // by the stage that has them; those in the last have been told
  EngineSteps result_;
};

}  // namespace

EngineSteps engine_steps_of(std::span<const RequestLengths> load, const SchedulerOptions& options,
                            int64_t window) {
  return Replay(load, options, window).run();
}

}  // namespace sluice::inference

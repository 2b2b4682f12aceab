#include "inference/passes.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::inference {
namespace {

constexpr int64_t kToken = 0;  // whatever is said

class Replay {
 public:
  Replay(std::span<const Lengths> load, const SchedulerOptions& options, int64_t window)
      : scheduler_(options), window_(window) {
    for (const Lengths& request : load) {
      scheduler_.add({std::vector<int64_t>(static_cast<size_t>(request.prompt), kToken), request.most_tokens,
                      static_cast<int>(request.said.size())});
      for (const int64_t said : request.said) {
        SLUICE_ASSERT(said >= 1 && said <= request.most_tokens, "a text says what it may not");
        end_.push_back(request.prompt + said);
      }
    }
  }

  Passes run() {
    while (pass_alike() || pass()) {
    }
    result_.evictions = scheduler_.evictions();
    return std::move(result_);
  }

 private:
  int64_t tokens_of(int64_t text) const { return std::ssize(scheduler_.tokens(text)); }
  int64_t end_of(int64_t text) const { return end_[static_cast<size_t>(text)]; }

  // False: all texts have ended.
  bool pass() {
    const std::vector<Piece> pieces = scheduler_.next();
    if (pieces.empty()) return false;
    cost::DecodeWork work;
    for (const Piece& piece : pieces) work.add(piece.begin, piece.end, piece.says, window_);
    add(work);
    for (const Piece& piece : pieces) {
      if (piece.says) scheduler_.said(piece.text, kToken, tokens_of(piece.text) + 1 == end_of(piece.text));
    }
    return true;
  }

  // As many as there are until a text ends, at its end; false: none.
  bool pass_alike() {
    int64_t passes = INT64_MAX;
    for (const int64_t text : scheduler_.running()) passes = std::min(passes, end_of(text) - tokens_of(text));
    passes = scheduler_.running().empty() ? 0 : scheduler_.alike(passes);
    if (passes == 0) return false;
    cost::DecodeWork work{.passes = passes};
    for (const int64_t text : scheduler_.running()) work.add_one_each(tokens_of(text) - 1, window_);
    add(work);
    scheduler_.pass_alike(passes, kToken);
    const std::vector<int64_t> running = scheduler_.running();
    for (const int64_t text : running) {
      if (tokens_of(text) == end_of(text)) scheduler_.drop(text);
    }
    return true;
  }

  void add(const cost::DecodeWork& work) {
    result_.count += work.passes;
    result_.work.push_back(work);
  }

  Scheduler scheduler_;
  int64_t window_;
  std::vector<int64_t> end_;  // tokens that a text has in the end, by text
  Passes result_;
};

}  // namespace

Passes passes_of(std::span<const Lengths> load, const SchedulerOptions& options, int64_t window) {
  return Replay(load, options, window).run();
}

}  // namespace sluice::inference

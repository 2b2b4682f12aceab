// How a run saves: behind its steps (checkpoint/background_save.h), the ranks agreeing by the words that they
// exchange behind each step in any case; or at once, where the run ends or checkpoint.async is off.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "checkpoint/background_save.h"
#include "run/checkpoints.h"
#include "run/critic.h"
#include "run/run_context.h"
#include "run/slice_snapshot.h"

namespace sluice::run {

class Saver {
 public:
  // Collective. `run` is open and outlives the saver.
  // `critic`: what is saved in front of each checkpoint; null: there is none.
  Saver(RunContext& run, Critic* critic);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Returns when what is being saved is no longer read of that bucket's slice.
  void wait_until_copied(int bucket);
  // For how long saves have held the run up since the last call.
  int64_t take_blocked_ns();

  // What all ranks are to know behind each step.
  checkpoint::SaveStatus status() const;
  // Collective: goes on with the save under way, if there is one. Throws on every rank when any rank failed;
  // what was saved before stays.
  void advance(std::span<const checkpoint::SaveStatus> words);

  // Whether to begin a save behind `done` steps, on all ranks alike: checkpoint.every says so, or said so
  // while the save before was under way. Nobody waits for a slow disk; its checkpoints are fewer. Where
  // parameters are pulled by differences, what was due then is left out.
  bool due(int64_t done);
  // Collective, behind the save where one is due: differences begin anew there, whether the disk was quick
  // enough for it or not, and so does who resumes from it, to the same bits.
  void begin_differences_anew(int64_t done);

  // Collective, between two steps: saves the present state. Returns when that is copied, or, without
  // checkpoint.async, as now().
  void save(const RunState& state);
  // Returns when the checkpoint is committed, and so is the one under way.
  void save_now(const RunState& state);
  // Collective: ends the save under way.
  void finish();

 private:
  enum class Source : uint8_t { kCopy, kSlices };
  void begin(const RunState& state, Source source);
  bool is_due(int64_t done) const;
  bool pulls_differences() const;
  void finish_first_place();
  void wait_and_advance();
  void tell(checkpoint::BackgroundSave::Progress progress, std::exception_ptr own) const;

  RunContext& run_;
  Critic* critic_;
  SliceSnapshot snapshot_;
  ReadProgress copying_;
  bool postponed_ = false;
  std::atomic<int64_t> blocked_ns_ = 0;  // for which saves have held the run up …
  int64_t blocked_before_ns_ = 0;        // … until the one under way began
  int64_t blocked_taken_ns_ = 0;         // … until take_blocked_ns() was called
  checkpoint::BackgroundSave save_;      // its thread uses the above
};

}  // namespace sluice::run

// Saves a run. Saves overlap the steps (checkpoint/background_save.h) and advance with statuses that ranks
// exchange after each step anyway. At the end of a run, or without checkpoint.async, steps wait for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "checkpoint/background_save.h"
#include "run/checkpoints.h"
#include "run/run_context.h"
#include "run/slice_snapshot.h"

namespace sluice::run {

class Critic;  // run/critic.h

class Saver {
 public:
  // Collective. `run` is open and outlives the saver.
  // `critic`: saved before each checkpoint of the policy; null: there is none.
  Saver(RunContext& run, Critic* critic);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Returns when the running save no longer reads that bucket's slice.
  void wait_until_copied(int bucket);
  // The time for which saves blocked the run since the last call.
  int64_t take_blocked_ns();

  // This rank's status, which all ranks are to get after each step.
  checkpoint::SaveStatus status() const;
  // Collective: advances the running save, if there is one. Throws on every rank if any rank failed; earlier
  // checkpoints stay.
  void advance(std::span<const checkpoint::SaveStatus> words);

  // Whether to begin a save after `done` steps, the same on all ranks: checkpoint.every asks for one, or
  // asked for one while the previous save was running. A slow disk makes checkpoints rarer instead of steps
  // slower. With pulls by differences a save that was due meanwhile is left out.
  bool due(int64_t done);
  // Collective, after the save if one is due: restarts the differences of pulls, even if a slow disk delays
  // the save. A run that resumes from the checkpoint restarts them, too, and gets the same bits.
  void begin_differences_anew(int64_t done);

  // Collective, between two steps: saves the present state. Returns when the state is copied or, without
  // checkpoint.async, as save_now().
  void save(const RunState& state);
  // Returns when this checkpoint, and any running save before it, is committed.
  void save_now(const RunState& state);
  // Collective: completes the running save.
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
  std::atomic<int64_t> blocked_ns_ = 0;  // for which saves have blocked the run …
  int64_t blocked_before_ns_ = 0;        // … until the running save began
  int64_t blocked_taken_ns_ = 0;         // … until take_blocked_ns() was called
  checkpoint::BackgroundSave save_;      // its thread uses the members above
};

}  // namespace sluice::run

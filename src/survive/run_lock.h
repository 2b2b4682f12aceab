// One run at a time writes into a run directory: a lock of files alone, for network file systems too.
//
// The lock is a row of files, lock/1, lock/2, …: the highest number is the present holder's, who said in it
// who it is, and changes a few bytes of it every few seconds. To take the lock is to make the next file; a
// link that fails when the name exists is atomic on every file system, NFS included, so two cannot both make
// it. A holder lets go by writing so into its file, which stays: numbers only grow, and whoever sees a higher
// one than its own knows that it was taken for dead.
//
// Who is dead? On the same machine the system knows at once. A holder elsewhere counts as dead when its bytes
// have not changed for a while by the clock of who watches; no two machines' clocks are compared.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"

namespace sluice::survive {

struct RunLockOptions {
  std::string command;  // for people: what the holder runs
  // Names an elastic run, whose epochs take the lock from each other at once: only the ranks that agreed on
  // the next one want it, and the holder, should it still live, finds out before it writes. "": another
  // run's.
  std::string run;
  int64_t beat_ns = 5'000'000'000;      // between two changes of the holder's bytes
  int64_t silence_ns = 30'000'000'000;  // without a change: a holder elsewhere is dead
  std::string machine;  // "": this kernel and its process numbers; tests pretend to be elsewhere
  std::function<void(const std::string&)> log;  // that one has to wait; may be empty
  std::function<void()> on_look;                // while one waits, now and then; may be empty
  // Called once, on the lock's thread, when somebody else has taken the lock: nothing may be written any
  // more.
  std::function<void(const base::Error&)> on_lost;
};

class RunLock {
 public:
  // Takes the lock of `directory`, which exists. Waits up to silence_ns for a holder elsewhere that gives no
  // sign of life. RunError naming the holder when it lives; RunError when the directory cannot be written.
  RunLock(const std::filesystem::path& directory, RunLockOptions options);
  ~RunLock();  // releases
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Lets go; the next one need not wait. Once is enough. Any thread.
  void release();

  // RunError when somebody else has taken the lock.
  void require_held() const;

  int64_t number() const { return number_; }

  // Blocks that the beats have moved to and from disks: they go on in a run that gets nowhere. Any thread.
  int64_t transfers() const;

 private:
  void take();
  void keep();
  bool make_file(int64_t number);
  void remove_leftovers() const;
  bool holds_or_regains();
  std::filesystem::path file(int64_t number) const;

  std::filesystem::path folder_;
  RunLockOptions options_;
  std::string identity_;  // the first line of the file: who holds it
  int64_t number_ = 0;
  int64_t beats_ = 0;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool released_ = false;
  std::atomic<int> thread_id_ = 0;  // the kernel's, once the thread runs
  std::thread thread_;
};

}  // namespace sluice::survive

// Lets one run at a time write to a run directory: a lock made of files, for network file systems too.
//
// The lock is a row of files, lock/1, lock/2, …. The highest number belongs to the current holder. Its file
// says who the holder is, and the holder changes a few bytes of it every few seconds. A process takes the
// lock by creating the next file: linking fails if the name exists and is atomic on every file system, NFS
// included, so only one can succeed. A holder releases by marking its file as released; the file stays.
// Numbers only grow, so a holder that sees a higher number than its own knows that it was taken for dead.
//
// When is a holder dead? On the same machine the system knows at once. A holder elsewhere counts as dead if
// its bytes do not change for silence_ns by the observer's clock; clocks of two machines are never compared.
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
  std::string command;  // for people: the command that the holder runs
  // The name of an elastic run; "" if it is none. Its memberships take the lock from each other at once: only
  // ranks that agreed on the next membership want it, and a previous holder that still lives notices before
  // it writes.
  std::string run;
  int64_t beat_ns = 5'000'000'000;      // between two changes of the holder's bytes
  int64_t silence_ns = 30'000'000'000;  // without a change for so long, a holder elsewhere is dead
  std::string machine;  // "": this kernel and its process numbers; tests pretend to be elsewhere
  std::function<void(const std::string&)> log;  // receives why the constructor waits; may be empty
  std::function<void()> on_look;                // called now and then during the wait; may be empty
  // Called once, on the lock's thread, when another process has taken the lock: this one must not write any
  // more.
  std::function<void(const base::Error&)> on_lost;
};

class RunLock {
 public:
  // Takes the lock of `directory`, which must exist. Waits up to silence_ns for a sign of life of a holder
  // elsewhere. RunError naming the holder if it lives; RunError if the directory cannot be written.
  RunLock(const std::filesystem::path& directory, RunLockOptions options);
  ~RunLock();  // releases
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Releases the lock, so that the next holder need not wait. Idempotent; callable from any thread.
  void release();

  // RunError if another process has taken the lock.
  void require_held() const;

  int64_t number() const { return number_; }

  // Disk blocks moved by the beats, which continue even in a run that is stuck. For any thread.
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
  std::string identity_;  // the first line of the lock file: describes the holder
  int64_t number_ = 0;
  int64_t beats_ = 0;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool released_ = false;
  std::atomic<int> thread_id_ = 0;  // the kernel's thread id, once the thread runs
  std::thread thread_;
};

}  // namespace sluice::survive

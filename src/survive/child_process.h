// A child process that is forked to run a function without exec: it starts with all that is loaded here.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>

namespace sluice::survive {

// One child at a time. The parent must have a single thread.
class ChildProcess {
 public:
  ChildProcess() = default;
  ~ChildProcess() { stop(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Runs `work` in a child; its return value is the exit status. The child is killed if this process dies
  // first. REQUIRES: no child runs. RunError if the system cannot create a process.
  void start(const std::function<int()>& work);
  bool runs() const { return id_ > 0; }
  void send(int signal) const;
  // The child's status as returned by waitpid, once it has ended by itself.
  std::optional<int> reap();
  // Waits for the child to end and returns its status.
  int wait();
  // Kills the child if it runs, and waits for its end.
  void stop();

 private:
  pid_t id_ = -1;
};

}  // namespace sluice::survive

// A process that this one forks to run a function, without exec: it begins with all that is loaded here.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>

namespace sluice::survive {

// One at a time. The parent has one thread.
class ChildProcess {
 public:
  ChildProcess() = default;
  ~ChildProcess() { stop(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Runs `work`, whose value is the exit status. It is killed when this process dies before it ends.
  // REQUIRES: none runs. RunError when the system gives no process.
  void start(const std::function<int()>& work);
  bool runs() const { return id_ > 0; }
  void send(int signal) const;
  // Its status as waitpid gives it, once it has ended by itself.
  std::optional<int> reap();
  // Returns when it has.
  int wait();
  // Ends it if it runs, and returns when it has ended.
  void stop();

 private:
  pid_t id_ = -1;
};

}  // namespace sluice::survive

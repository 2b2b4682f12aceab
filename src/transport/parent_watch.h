// The death of the process that started this one, as ranks of other launchers notice it: a rank whose
// launcher is gone must not train on beside the ranks that are started in its place.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

#include "transport/socket.h"

namespace sluice::transport {

class ParentWatch {
 public:
  // Calls `on_death` once, on a thread of its own, when this process has another parent than now: asked twice
  // a second. (The kernel's own signal for it, PR_SET_PDEATHSIG, also comes when merely the thread ends that
  // forked, so it serves only our launcher, which forks on its main thread.)
  explicit ParentWatch(std::function<void(pid_t parent)> on_death);
  ~ParentWatch();
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

 private:
  void watch();

  const std::function<void(pid_t)> on_death_;
  const pid_t parent_;
  Socket wake_;  // eventfd: the destructor is called
  std::thread thread_;
};

}  // namespace sluice::transport

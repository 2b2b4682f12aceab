// Notices the death of the process that started this rank, for launchers other than ours. A rank whose
// launcher is gone must not train on beside ranks that are started in its place.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

#include "transport/socket.h"

namespace sluice::transport {

class ParentWatch {
 public:
  // Calls `on_death` once, on a thread of its own, when this process gets another parent; checked twice a
  // second. The kernel's signal for this, PR_SET_PDEATHSIG, comes already when the thread that forked ends.
  // So only our launcher uses it, which forks on its main thread.
  explicit ParentWatch(std::function<void(pid_t parent)> on_death);
  ~ParentWatch();
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

 private:
  void watch();

  const std::function<void(pid_t)> on_death_;
  const pid_t parent_;
  Socket wake_;  // eventfd: the destructor was called
  std::thread thread_;
};

}  // namespace sluice::transport

#include "transport/parent_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace sluice::transport {

namespace {

constexpr int kPauseMs = 500;

}  // namespace

ParentWatch::ParentWatch(std::function<void(pid_t)> on_death)
    : on_death_(std::move(on_death)),
      parent_(getppid()),
      wake_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { watch(); }) {}

ParentWatch::~ParentWatch() {
  eventfd_write(wake_.fd(), 1);
  thread_.join();
}

void ParentWatch::watch() {
  while (getppid() == parent_) {
    pollfd entry{wake_.fd(), POLLIN, 0};
    if (poll(&entry, 1, kPauseMs) > 0) return;
  }
  on_death_(parent_);
}

}  // namespace sluice::transport

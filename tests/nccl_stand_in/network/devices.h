// Streams of the stand-in's GPUs, and the order in which their kernels run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "work.h"

namespace sluice::nccl_stand_in {

// Not thread-safe.
class Devices {
 public:
  Stream* new_stream(int device);
  Stream* default_stream(int device);
  void push(const WorkPtr& work);
  // Kernels of a device run one at a time in the order of these calls.
  void launch(const WorkPtr& kernel);
  // Carries out all that can be.
  void run();
  // Kernels of this kind end at once, and move nothing.
  void drop(const std::function<bool(const Work&)>& which);
  void clear();

  const std::deque<WorkPtr>& kernels(int device) { return launched_[device]; }
  const LaunchOrder& order() const { return launched_; }

 private:
  bool runs(const Work& kernel);
  // Each returns whether something was done.
  bool run_front(Stream& stream);
  bool run_kernel(Work& kernel);
  bool run_messages(Work& kernel);
  void finish(Work& work);

  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<int, Stream*> default_streams_;
  std::set<Stream*> busy_;  // streams with works
  LaunchOrder launched_;
};

}  // namespace sluice::nccl_stand_in

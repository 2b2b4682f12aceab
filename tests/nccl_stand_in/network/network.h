// GPUs and NCCL in host memory, for ranks that are threads of one process and use a device each.
//
// The network does all it can at each call, and nothing in between: there are no threads and no clock here.
// - A stream's works run in order. A device's kernels run one at a time in the order of their launch, which
//   is what NCCL_LAUNCH_ORDER_IMPLICIT promises at least.
// - A kernel runs while the kernels of the other members run that it exchanges with.
// - A call is accepted, and carried out once its state was asked some times. Until then the communicator
// takes
//   no other call.
// - Two members connect at their first message in a direction, and all members at their first collective of a
//   kind. Until all of them have asked for it, the call is not carried out, and its caller waits.
//
// A fault is found where NCCL would hang or move other bytes than were meant: a circle of waits, ranks that
// all wait, unlike sizes or types, calls of a communicator that still has one to carry out, an abort that
// waits for another communicator's kernel. After the first fault all calls fail.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "devices.h"
#include "host_waits.h"
#include "work.h"

namespace sluice::nccl_stand_in {

struct NetworkOptions {
  int polls = 2;                // how often a state is asked before the call is carried out
  bool losses_are_seen = true;  // NCCL reports that a peer has gone: over sockets and InfiniBand
  std::function<void()> before_state = [] {};  // called by each thread that asks for a state
  // Mutations: each call of a group is one of its own.
  bool ignores_groups = false;
  bool ignores_groups_of_aborts = false;
};

struct NetworkCounts {
  int64_t connections = 0;    // made so far: of two members in a direction, of all for a kind of collective
  int64_t late = 0;           // of these, by calls of more than a byte or an element
  int64_t communicators = 0;  // members that were neither destroyed nor aborted
  int64_t kernels = 0;        // launched so far
};

// The calling thread's device, which is also its rank.
int& current_device();

// Thread-safe.
class Network {
 public:
  // NCCL's and CUDA's functions have no argument that could carry it.
  static Network& of_process();
  // Forgets everything but streams. REQUIRES: no thread uses the network.
  void reset(const NetworkOptions& options);
  const NetworkOptions& options() const { return options_; }

  // A rank's thread runs from enter() to leave(), or until its process is lost.
  void enter(int rank);
  void leave(int rank);
  void lose(int rank);

  const char* fault();  // "": none
  NetworkCounts counts();

  Stream* new_stream(int device);
  Stream* default_stream(int device);
  void copy(Stream& stream, std::function<void()> run);
  // False: a fault ended the wait.
  bool synchronize(Stream& stream);

  Member* join(const std::string& id, int members, Member member, const std::string& name);
  ncclResult_t issue(const std::vector<WorkPtr>& kernels);
  ncclResult_t state(Member& member);
  ncclResult_t finalize(Member& member);
  void destroy(Member& member);
  void abort(const std::vector<Member*>& members);

 private:
  // All below REQUIRE the lock.
  bool accept(const WorkPtr& kernel);
  void launch(const WorkPtr& kernel);
  void remove(Member& member);
  void look_for_stuck_ranks();
  void fail(const std::string& fault);

  NetworkOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string fault_;
  NetworkCounts counts_;
  Devices devices_;
  std::map<std::string, std::unique_ptr<Communicator>> communicators_;  // by id
  std::vector<std::unique_ptr<Member>> members_;
  std::set<int> lost_;   // ranks
  bool aborts_ = false;  // a member has been aborted
  HostWaits waits_;
};

}  // namespace sluice::nccl_stand_in

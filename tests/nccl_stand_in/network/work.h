// Work of the stand-in's GPUs: streams, kernels of communicators, and the communicators themselves.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sluice::nccl_stand_in {

struct Communicator;
struct Member;
struct Stream;

// One message of a group of messages; `peer` is a member.
struct Part {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t bytes = 0;
  int peer = 0;
  bool done = false;
};

// Work of a stream. The last three kinds are NCCL's kernels.
struct Work {
  enum class Kind : uint8_t { kCopy, kMessages, kAllGather, kReduceScatter };
  Kind kind = Kind::kCopy;
  Stream* stream = nullptr;
  bool done = false;
  std::function<void()> run = nullptr;  // kCopy

  Member* member = nullptr;
  std::string what = "";         // "rank 2's 'lanes' #3 all_gather"
  std::vector<Part> parts = {};  // kMessages
  int64_t place = 0;             // collectives: the number of those that this member issued before
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t count = 0;
  ncclDataType_t type = ncclUint8;

  bool is_kernel() const { return kind >= Kind::kMessages; }
};
using WorkPtr = std::shared_ptr<Work>;

struct Stream {
  int device = 0;
  std::deque<WorkPtr> works;  // not done, oldest first
};

// One direction between two members. Two ends connect when both have asked for it, at their first message.
struct Pair {
  bool sender_asked = false;
  bool receiver_asked = false;
  std::deque<std::pair<WorkPtr, size_t>> sends;  // works and their parts, not done
  std::deque<std::pair<WorkPtr, size_t>> receives;

  bool connected() const { return sender_asked && receiver_asked; }
};

// Members' kernels of one collective, by member; null: not issued yet.
using Collective = std::vector<WorkPtr>;

struct Communicator {
  std::string name;
  std::vector<Member*> members;               // null: has not joined
  std::map<std::pair<int, int>, Pair> pairs;  // by (sender, receiver)
  std::map<Work::Kind, std::set<int>> asked;  // members that have issued a collective of the kind
  std::deque<Collective> collectives;         // not done, oldest first
  int64_t first_place = 0;                    // of the oldest

  bool joined() const {
    for (const Member* member : members) {
      if (member == nullptr) return false;
    }
    return true;
  }
};

// A rank's place in a communicator; an ncclComm_t points to one.
struct Member {
  enum class State : uint8_t { kOpen, kFinalized, kGone };
  Communicator* of = nullptr;
  int index = 0;
  int device = 0;  // also the rank
  State state = State::kOpen;
  int polls_left = 0;             // before what was called is carried out
  std::vector<WorkPtr> accepted;  // issued, not launched yet
  int64_t issued = 0;
  int64_t collectives = 0;
};

// Kernels that run together with `kernel`, as far as they were issued and are not done.
std::vector<const Work*> counterparts(const Work& kernel);
// Members without which the kernel cannot end: they have not issued their part yet.
std::vector<const Member*> missing(const Work& kernel);
// Kernels by device, not done, in the order of their launch.
using LaunchOrder = std::map<int, std::deque<WorkPtr>>;
// The circle of waits that goes through `kernel`: "rank 0's 'a' #1 exchange waits for …"; empty: none.
std::string circle_through(const Work& kernel, const LaunchOrder& order);

// Moves the bytes of a message, or of a whole collective.
void carry_out(const Part& send, const Part& receive);
void carry_out(const Collective& collective);
// Why two members' kernels cannot be one collective; empty if they can.
std::string mismatch(const Work& one, const Work& other);

}  // namespace sluice::nccl_stand_in

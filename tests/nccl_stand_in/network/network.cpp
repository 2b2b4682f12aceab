#include "network.h"

#include <algorithm>
#include <utility>

namespace sluice::nccl_stand_in {
namespace {

using Lock = std::unique_lock<std::mutex>;

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

// Marks this member's side of all that the kernel needs, and counts what is complete by that. Returns whether
// nothing is missing.
bool ask(const Work& kernel, NetworkCounts& counts) {
  Communicator& of = *kernel.member->of;
  const int own = kernel.member->index;
  const auto count = [&counts](int64_t size) {
    ++counts.connections;
    counts.late += size > 1 ? 1 : 0;
  };
  if (kernel.kind != Work::Kind::kMessages) {
    std::set<int>& asked = of.asked[kernel.kind];
    const bool added = asked.insert(own).second;
    const bool all = asked.size() == of.members.size();
    if (added && all && of.members.size() > 1) count(kernel.count);
    return all;
  }
  bool connected = true;
  for (const Part& part : kernel.parts) {
    Pair& pair = of.pairs[part.send != nullptr ? std::pair(own, part.peer) : std::pair(part.peer, own)];
    const bool before = pair.connected();
    (part.send != nullptr ? pair.sender_asked : pair.receiver_asked) = true;
    if (!before && pair.connected()) count(part.bytes);
    connected = connected && pair.connected();
  }
  return connected;
}

// Puts the kernel in the lines in which it meets others. Returns why it cannot meet them; empty if it can.
std::string line_up(const WorkPtr& kernel) {
  Communicator& of = *kernel->member->of;
  if (kernel->kind != Work::Kind::kMessages) {
    const auto position = static_cast<size_t>(kernel->place - of.first_place);
    while (of.collectives.size() <= position) of.collectives.emplace_back(of.members.size());
    Collective& collective = of.collectives[position];
    collective[static_cast<size_t>(kernel->member->index)] = kernel;
    for (const WorkPtr& other : collective) {
      if (other == nullptr || other == kernel) continue;
      if (std::string fault = mismatch(*other, *kernel); !fault.empty()) return fault;
    }
    return "";
  }
  for (size_t i = 0; i < kernel->parts.size(); ++i) {
    const Part& part = kernel->parts[i];
    const int own = kernel->member->index;
    const bool sends = part.send != nullptr;
    Pair& pair = of.pairs[sends ? std::pair(own, part.peer) : std::pair(part.peer, own)];
    auto& line = sends ? pair.sends : pair.receives;
    const auto& others = sends ? pair.receives : pair.sends;
    line.emplace_back(kernel, i);
    if (others.size() < line.size()) continue;
    const auto& [other, number] = others[line.size() - 1];
    const int64_t bytes = other->parts[number].bytes;
    if (bytes != part.bytes) {
      return kernel->what + " of " + std::to_string(part.bytes) + " bytes meets " + other->what + " of " +
             std::to_string(bytes) + " bytes";
    }
  }
  return "";
}

bool has_gone(const Member& member, const std::set<int>& lost) {
  return member.state == Member::State::kGone || lost.contains(member.device);
}

// Whether the kernel waits for a member whose process or communicator has gone.
bool is_hopeless(const Work& kernel, const std::set<int>& lost) {
  return std::ranges::any_of(missing(kernel), [&](const Member* member) { return has_gone(*member, lost); });
}

// The same before its launch.
bool cannot_connect(const Work& kernel, const std::set<int>& lost) {
  const std::vector<Member*>& members = kernel.member->of->members;
  if (kernel.kind != Work::Kind::kMessages)
    return std::ranges::any_of(members, [&](const Member* member) { return has_gone(*member, lost); });
  return std::ranges::any_of(kernel.parts, [&](const Part& part) {
    return has_gone(*members[static_cast<size_t>(part.peer)], lost);
  });
}

bool is_closed(const Communicator& communicator) {
  return std::ranges::all_of(communicator.members,
                             [](const Member* each) { return each->state != Member::State::kOpen; });
}

// The state of a member that has launched all its kernels; `kernels` are those of its device.
ncclResult_t state_of_kernels(const Member& member, const std::deque<WorkPtr>& kernels,
                              const std::set<int>& lost) {
  bool busy = false;
  for (const WorkPtr& kernel : kernels) {
    if (kernel->member != &member) continue;
    if (is_hopeless(*kernel, lost)) return ncclRemoteError;
    busy = true;
  }
  if (member.state == Member::State::kOpen) return ncclSuccess;
  for (const Member* other : member.of->members) {
    if (lost.contains(other->device)) return ncclRemoteError;
  }
  return is_closed(*member.of) && !busy ? ncclSuccess : ncclInProgress;
}

// Why the member cannot join; empty if it can.
std::string refusal(const Communicator& communicator, int members, const Member& member,
                    const std::string& name) {
  if (communicator.name != name || std::ssize(communicator.members) != members ||
      communicator.members[static_cast<size_t>(member.index)] != nullptr)
    return rank_text(member.device) + " joins '" + name + "', whose id is another communicator's";
  for (const Member* other : communicator.members) {
    if (other != nullptr && other->device == member.device)
      return "two members of '" + name + "' have the same device";
  }
  return "";
}

}  // namespace

Network& Network::of_process() {
  static auto* const network = new Network;
  return *network;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

void Network::reset(const NetworkOptions& options) {
  const Lock lock(mutex_);
  options_ = options;
  fault_.clear();
  counts_ = {};
  devices_.clear();
  communicators_.clear();
  members_.clear();
  lost_.clear();
  aborts_ = false;
  waits_ = {};
}

void Network::enter(int rank) {
  const Lock lock(mutex_);
  waits_.enter(rank);
}

void Network::leave(int rank) {
  const Lock lock(mutex_);
  waits_.leave(rank);
  look_for_stuck_ranks();
}

void Network::lose(int rank) {
  const Lock lock(mutex_);
  waits_.leave(rank);
  lost_.insert(rank);
  devices_.drop([&](const Work& kernel) { return kernel.member->device == rank; });
  look_for_stuck_ranks();
  changed_.notify_all();
}

const char* Network::fault() {
  const Lock lock(mutex_);
  return fault_.c_str();
}

NetworkCounts Network::counts() {
  const Lock lock(mutex_);
  NetworkCounts counts = counts_;
  counts.communicators = std::ranges::count_if(
      members_, [](const auto& member) { return member->state != Member::State::kGone; });
  return counts;
}

Stream* Network::new_stream(int device) {
  const Lock lock(mutex_);
  return devices_.new_stream(device);
}

Stream* Network::default_stream(int device) {
  const Lock lock(mutex_);
  return devices_.default_stream(device);
}

void Network::copy(Stream& stream, std::function<void()> run) {
  const Lock lock(mutex_);
  devices_.push(std::make_shared<Work>(Work{.stream = &stream, .run = std::move(run)}));
  if (fault_.empty()) devices_.run();
  changed_.notify_all();
}

bool Network::synchronize(Stream& stream) {
  Lock lock(mutex_);
  if (stream.works.empty()) return fault_.empty();
  const WorkPtr last = stream.works.back();
  waits_.begin(stream.device, {.what = "waits for a stream", .over = [last] { return last->done; }});
  look_for_stuck_ranks();
  changed_.wait(lock, [&] { return last->done || !fault_.empty(); });
  waits_.end(stream.device);
  return fault_.empty();
}

Member* Network::join(const std::string& id, int members, Member member, const std::string& name) {
  const Lock lock(mutex_);
  auto& communicator = communicators_[id];
  if (communicator == nullptr) {
    communicator = std::make_unique<Communicator>();
    communicator->name = name;
    communicator->members.resize(static_cast<size_t>(members));
  }
  if (const std::string why = refusal(*communicator, members, member, name); !why.empty()) {
    fail(why);
    return nullptr;
  }
  member.of = communicator.get();
  member.polls_left = options_.polls;
  members_.push_back(std::make_unique<Member>(std::move(member)));
  communicator->members[static_cast<size_t>(members_.back()->index)] = members_.back().get();
  changed_.notify_all();
  return members_.back().get();
}

ncclResult_t Network::issue(const std::vector<WorkPtr>& kernels) {
  const Lock lock(mutex_);
  for (const WorkPtr& kernel : kernels) {
    if (!accept(kernel)) return ncclInvalidArgument;
  }
  for (const WorkPtr& kernel : kernels) ask(*kernel, counts_);
  return fault_.empty() ? ncclInProgress : ncclInternalError;
}

ncclResult_t Network::state(Member& member) {
  const Lock lock(mutex_);
  waits_.end_asking(member.device);
  if (!fault_.empty()) return ncclInternalError;
  if (member.state == Member::State::kGone) return ncclInvalidArgument;
  if (lost_.contains(member.device)) return ncclRemoteError;
  if (!member.of->joined()) return ncclInProgress;
  if (member.polls_left > 0) return --member.polls_left, ncclInProgress;
  for (const WorkPtr& kernel : member.accepted) {
    if (ask(*kernel, counts_)) continue;
    if (options_.losses_are_seen && cannot_connect(*kernel, lost_)) return ncclRemoteError;
    waits_.begin(member.device, {.what = kernel->what + " waits for a peer to connect",
                                 .over = [this, kernel] { return ask(*kernel, counts_); },
                                 .asks = true});
    look_for_stuck_ranks();
    return fault_.empty() ? ncclInProgress : ncclInternalError;
  }
  for (const WorkPtr& kernel : std::exchange(member.accepted, {})) {
    if (fault_.empty()) launch(kernel);
  }
  if (!fault_.empty()) return ncclInternalError;
  ncclResult_t result = state_of_kernels(member, devices_.kernels(member.device), lost_);
  if (result == ncclRemoteError && !options_.losses_are_seen)
    result = member.state == Member::State::kOpen ? ncclSuccess : ncclInProgress;
  if (result == ncclInProgress) {
    waits_.begin(member.device, {.what = "closes '" + member.of->name + "'",
                                 .over = [&of = *member.of] { return is_closed(of); },
                                 .asks = true});
    look_for_stuck_ranks();
  }
  return fault_.empty() ? result : ncclInternalError;
}

ncclResult_t Network::finalize(Member& member) {
  const Lock lock(mutex_);
  if (!fault_.empty()) return ncclInternalError;
  member.state = Member::State::kFinalized;
  return ncclInProgress;
}

void Network::destroy(Member& member) {
  const Lock lock(mutex_);
  remove(member);
}

void Network::abort(const std::vector<Member*>& members) {
  Lock lock(mutex_);
  aborts_ = aborts_ || !members.empty();
  for (Member* member : members) remove(*member);
  // Memory is freed, which waits for all kernels of the device.
  for (const Member* member : members) {
    const std::deque<WorkPtr>& left = devices_.kernels(member->device);
    while (!left.empty() && fault_.empty()) {
      for (const WorkPtr& kernel : left) {
        if (!is_hopeless(*kernel, lost_)) continue;
        fail("the abort of '" + member->of->name + "' waits for " + kernel->what +
             ", whose peer has gone: they need one group");
        return;
      }
      changed_.wait(lock);
    }
  }
}

void Network::remove(Member& member) {
  devices_.drop([&](const Work& kernel) { return kernel.member == &member; });
  member.accepted.clear();
  member.state = Member::State::kGone;
  if (fault_.empty()) devices_.run();
  changed_.notify_all();
}

bool Network::accept(const WorkPtr& kernel) {
  Member& member = *kernel->member;
  kernel->what = rank_text(member.device) + "'s '" + member.of->name + "' #" +
                 std::to_string(member.issued++) + " " + kernel->what;
  const bool same_call = !member.accepted.empty() && member.accepted.back()->stream == kernel->stream &&
                         member.accepted.back()->kind == kernel->kind && options_.ignores_groups;
  if ((!member.accepted.empty() && !same_call) || (member.accepted.empty() && member.polls_left > 0) ||
      member.state != Member::State::kOpen || !member.of->joined()) {
    fail(kernel->what + " was called before the last call was carried out");
    return false;
  }
  if (kernel->kind != Work::Kind::kMessages) kernel->place = member.collectives++;
  member.accepted.push_back(kernel);
  member.polls_left = options_.polls;
  return true;
}

void Network::launch(const WorkPtr& kernel) {
  ++counts_.kernels;
  devices_.launch(kernel);
  if (const std::string fault = line_up(kernel); !fault.empty()) return fail(fault);
  devices_.run();
  changed_.notify_all();
  if (kernel->done) return;
  if (const std::string circle = circle_through(*kernel, devices_.order()); !circle.empty())
    fail("a circle: " + circle);
}

// A loss that is seen, and an abort, end waits by the threads that watch communicators.
void Network::look_for_stuck_ranks() {
  if (options_.losses_are_seen && (aborts_ || !lost_.empty())) return;
  std::string all;
  for (const auto& [rank, what] : waits_.stuck()) {
    all += "; " + rank_text(rank) + ": " + what;
    for (const WorkPtr& kernel : devices_.kernels(rank)) all += ", " + kernel->what;
  }
  if (!all.empty()) fail("every rank waits" + all);
}

void Network::fail(const std::string& fault) {
  if (fault_.empty()) fault_ = fault;
  changed_.notify_all();
}

}  // namespace sluice::nccl_stand_in

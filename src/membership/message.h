// Messages between members that agree on the next membership (agent.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "membership/membership.h"

namespace sluice::membership {

// The number of a proposal for one membership; no two members use the same.
struct Ballot {
  int64_t round = 0;  // 0: none yet
  MemberId proposer = 0;
  auto operator<=>(const Ballot&) const = default;
};

enum class MessageType : uint8_t {
  kPrepare,   // proposer: which members continue with me?
  kPromise,   // I do, and refuse lower ballots; with my snapshots and the value that I accepted before
  kAccept,    // proposer: accept `value` as the next membership
  kAccepted,  // accepted, unless a higher ballot comes
  kRefused,   // I have promised the higher `ballot`
  kCommit,    // `value` is the next membership
  kBehind,    // my membership is number `membership`; your message is not about the next one
  kJoin,      // I want to join the next membership
  kEnded,     // my worker ended for good with `exit_status`, and so will those of all members of `value`
};

struct Message {
  MessageType type = MessageType::kJoin;
  Member from;
  int64_t membership = 0;  // the number that is being agreed on
  Ballot ballot;
  std::optional<Membership> value;
  Ballot accepted;                      // kPromise: the ballot under which `value` was accepted
  std::vector<HeldSnapshot> snapshots;  // kPromise
  int exit_status = 0;                  // kEnded
};

std::string to_text(const Message& message);
// InputError if the text is not a message.
Message message_from_text(const std::string& text);

}  // namespace sluice::membership

// What members tell each other while they agree on the next epoch (agent.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "membership/membership.h"

namespace sluice::membership {

// Numbers attempts to agree on one epoch; no two members make the same.
struct Ballot {
  int64_t round = 0;  // 0: none yet
  MemberId proposer = 0;
  auto operator<=>(const Ballot&) const = default;
};

enum class MessageType : uint8_t {
  kPrepare,   // proposer: who goes on with me?
  kPromise,   // I do, nobody with a lower ballot can have me; what I hold, and what I accepted before
  kAccept,    // proposer: then let `value` be the epoch
  kAccepted,  // so be it, if nobody with a higher ballot comes
  kRefused,   // I promised `ballot` already
  kCommit,    // `value` is the epoch
  kBehind,    // you speak of an epoch that is not the next one after mine, `epoch`
  kJoin,      // I would like to be a member of the next one
  kEnded,     // my worker ended for good, with `exit_status`, and so will those of all members of `value`
};

struct Message {
  MessageType type = MessageType::kJoin;
  Member from;
  int64_t membership = 0;  // that is agreed on
  Ballot ballot;
  std::optional<Membership> value;
  Ballot accepted;                      // kPromise: the ballot that `value` was accepted in
  std::vector<HeldSnapshot> snapshots;  // kPromise
  int exit_status = 0;                  // kEnded
};

std::string to_text(const Message& message);
// InputError when it is none.
Message message_from_text(const std::string& text);

}  // namespace sluice::membership

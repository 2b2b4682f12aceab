#include "membership/message.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/json_fields.h"

namespace sluice::membership {

namespace {

constexpr const char* kName = "a member's message";

base::Json to_json(const Ballot& ballot) {
  return {{"round", ballot.round}, {"proposer", base::hash_text(ballot.proposer)}};
}

Ballot ballot_from_json(const base::Json& json) {
  return {base::require<int64_t>(json, "round", kName),
          base::parse_hash(base::require<std::string>(json, "proposer", kName))};
}

}  // namespace

std::string to_text(const Message& message) {
  base::Json json{{"type", static_cast<int>(message.type)}, {"from", to_json(message.from)},
                  {"membership", message.membership},       {"ballot", to_json(message.ballot)},
                  {"accepted", to_json(message.accepted)},  {"snapshots", base::Json::array()},
                  {"exit_status", message.exit_status}};
  if (message.value) json["value"] = to_json(*message.value);
  for (const HeldSnapshot& held : message.snapshots) json["snapshots"].push_back(to_json(held));
  return base::json_text(json);
}

Message message_from_text(const std::string& text) {
  const base::Json json = base::parse_json(text, kName);
  const int word = base::require<int>(json, "type", kName);
  if (word < 0 || word > static_cast<int>(MessageType::kEnded))
    base::refuse(json["type"], "type", "a type of message", kName);
  Message message{.type = static_cast<MessageType>(word),
                  .from = member_from_json(base::require<base::Json>(json, "from", kName), kName),
                  .membership = base::require<int64_t>(json, "membership", kName),
                  .ballot = ballot_from_json(base::require<base::Json>(json, "ballot", kName)),
                  .accepted = ballot_from_json(base::require<base::Json>(json, "accepted", kName))};
  message.exit_status = base::require<int>(json, "exit_status", kName);
  if (json.contains("value")) message.value = membership_from_json(json["value"], kName);
  for (const base::Json& held : base::require<base::Json>(json, "snapshots", kName))
    message.snapshots.push_back(held_snapshot_from_json(held, kName));
  return message;
}

}  // namespace sluice::membership

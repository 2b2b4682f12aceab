#include "membership/membership.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::membership {

namespace {

using Moment = std::pair<int64_t, int64_t>;  // step, membership

struct Copies {
  int ranks = 0;
  size_t sealed = 0;           // members with their own slices
  std::map<int, int> holders;  // rank -> member
};

}  // namespace

int Membership::rank_of(MemberId member) const {
  const auto found = std::ranges::find(members, member, &Member::id);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

Origin newest_origin(std::span<const std::vector<HeldSnapshot>> held, int64_t present) {
  std::map<Moment, Copies> moments;
  for (const bool own : {true, false}) {
    for (size_t member = 0; member < held.size(); ++member) {
      for (const HeldSnapshot& slices : held[member]) {
        if (slices.own != own) continue;
        Copies& copies = moments[{slices.step, slices.membership}];
        copies.ranks = slices.ranks;
        copies.holders.try_emplace(slices.rank, static_cast<int>(member));
        copies.sealed += own ? 1 : 0;
      }
    }
  }
  Origin origin;
  for (auto moment = moments.rbegin(); moment != moments.rend(); ++moment) {
    const Copies& copies = moment->second;
    if (static_cast<int>(copies.holders.size()) < copies.ranks) continue;
    if (moment->first.second == present && copies.sealed < held.size()) continue;
    origin.step = moment->first.first;
    origin.membership = moment->first.second;
    for (const auto& [rank, member] : copies.holders) origin.holders.push_back(member);
    break;
  }
  return origin;
}

FirstMembership first_membership_of(std::span<const Arrival> arrivals) {
  FirstMembership opening;
  std::set<uint64_t> histories;
  for (const Arrival& arrival : arrivals) {
    opening.membership.members.push_back(arrival.member);
    if (!arrival.snapshots.empty()) histories.insert(arrival.history);
  }
  for (const uint64_t history : histories) {
    std::vector<std::vector<HeldSnapshot>> held;
    int64_t next = 0;
    for (const Arrival& arrival : arrivals) {
      held.push_back(arrival.history == history ? arrival.snapshots : std::vector<HeldSnapshot>());
      for (const HeldSnapshot& slices : held.back()) next = std::max(next, slices.membership + 1);
    }
    const Origin origin = newest_origin(held, next);
    if (origin.step <= opening.membership.origin.step) continue;
    opening.history = history;
    opening.membership.number = next;
    opening.membership.origin = origin;
  }
  return opening;
}

std::vector<std::string> differing_copies(std::span<const std::vector<HeldSnapshot>> held) {
  std::map<std::pair<Moment, int>, uint64_t> own;
  for (const std::vector<HeldSnapshot>& member : held) {
    for (const HeldSnapshot& slices : member) {
      if (slices.own) own[{{slices.step, slices.membership}, slices.rank}] = slices.hash;
    }
  }
  std::vector<std::string> lines;
  for (const std::vector<HeldSnapshot>& member : held) {
    for (const HeldSnapshot& slices : member) {
      const auto found = own.find({{slices.step, slices.membership}, slices.rank});
      if (slices.own || found == own.end() || found->second == slices.hash) continue;
      lines.push_back(
          base::text("rank ", slices.rank, " of membership ", slices.membership, " has other slices after ",
                     slices.step, " steps (", base::hash_text(found->second), ") than the replica of them (",
                     base::hash_text(slices.hash), "): memory, a processor or the network is at fault"));
    }
  }
  return lines;
}

base::Json to_json(const Member& member) {
  return {{"id", base::hash_text(member.id)},
          {"host", member.host},
          {"address", member.address},
          {"port", member.port},
          {"store_port", member.store_port}};
}

Member member_from_json(const base::Json& json, const std::string& name) {
  return {.id = base::parse_hash(base::require<std::string>(json, "id", name)),
          .host = base::require<std::string>(json, "host", name),
          .address = base::require<std::string>(json, "address", name),
          .port = base::require<int>(json, "port", name),
          .store_port = base::require<int>(json, "store_port", name)};
}

base::Json to_json(const HeldSnapshot& held) {
  return {{"step", held.step}, {"membership", held.membership},      {"ranks", held.ranks},
          {"rank", held.rank}, {"hash", base::hash_text(held.hash)}, {"own", held.own}};
}

HeldSnapshot held_snapshot_from_json(const base::Json& json, const std::string& name) {
  return {.step = base::require<int64_t>(json, "step", name),
          .membership = base::require<int64_t>(json, "membership", name),
          .ranks = base::require<int>(json, "ranks", name),
          .rank = base::require<int>(json, "rank", name),
          .hash = base::parse_hash(base::require<std::string>(json, "hash", name)),
          .own = base::require<bool>(json, "own", name)};
}

base::Json to_json(const Arrival& arrival) {
  base::Json json{{"member", to_json(arrival.member)},
                  {"history", base::hash_text(arrival.history)},
                  {"snapshots", base::Json::array()}};
  for (const HeldSnapshot& held : arrival.snapshots) json["snapshots"].push_back(to_json(held));
  return json;
}

Arrival arrival_from_json(const base::Json& json, const std::string& name) {
  Arrival arrival{.member = member_from_json(base::require<base::Json>(json, "member", name), name),
                  .history = base::parse_hash(base::require<std::string>(json, "history", name))};
  for (const base::Json& held : base::require<base::Json>(json, "snapshots", name))
    arrival.snapshots.push_back(held_snapshot_from_json(held, name));
  return arrival;
}

base::Json to_json(const FirstMembership& opening) {
  return {{"membership", to_json(opening.membership)}, {"history", base::hash_text(opening.history)}};
}

FirstMembership first_membership_from_json(const base::Json& json, const std::string& name) {
  return {.membership = membership_from_json(base::require<base::Json>(json, "membership", name), name),
          .history = base::parse_hash(base::require<std::string>(json, "history", name))};
}

base::Json to_json(const Membership& membership) {
  base::Json json{{"number", membership.number},
                  {"members", base::Json::array()},
                  {"step", membership.origin.step},
                  {"layout", membership.origin.membership},
                  {"holders", membership.origin.holders}};
  for (const Member& member : membership.members) json["members"].push_back(to_json(member));
  return json;
}

Membership membership_from_json(const base::Json& json, const std::string& name) {
  Membership membership;
  membership.number = base::require<int64_t>(json, "number", name);
  membership.origin = {.step = base::require<int64_t>(json, "step", name),
                       .membership = base::require<int64_t>(json, "layout", name),
                       .holders = base::require<std::vector<int>>(json, "holders", name)};
  for (const base::Json& member : base::require<base::Json>(json, "members", name))
    membership.members.push_back(member_from_json(member, name));
  return membership;
}

}  // namespace sluice::membership

#include "membership/epoch.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::membership {

namespace {

using Moment = std::pair<int64_t, int64_t>;  // step, epoch

struct Copies {
  int ranks = 0;
  size_t sealed = 0;           // members that have their own
  std::map<int, int> holders;  // rank -> member
};

}  // namespace

int Epoch::rank_of(MemberId member) const {
  const auto found = std::ranges::find(members, member, &Member::id);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

Origin newest_origin(std::span<const std::vector<Held>> held, int64_t present) {
  std::map<Moment, Copies> moments;
  for (const bool own : {true, false}) {
    for (size_t member = 0; member < held.size(); ++member) {
      for (const Held& slices : held[member]) {
        if (slices.own != own) continue;
        Copies& copies = moments[{slices.step, slices.epoch}];
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
    origin.epoch = moment->first.second;
    for (const auto& [rank, member] : copies.holders) origin.holders.push_back(member);
    break;
  }
  return origin;
}

Opening opening_of(std::span<const Arrival> arrivals) {
  Opening opening;
  std::set<uint64_t> histories;
  for (const Arrival& arrival : arrivals) {
    opening.epoch.members.push_back(arrival.member);
    if (!arrival.held.empty()) histories.insert(arrival.history);
  }
  for (const uint64_t history : histories) {
    std::vector<std::vector<Held>> held;
    int64_t next = 0;
    for (const Arrival& arrival : arrivals) {
      held.push_back(arrival.history == history ? arrival.held : std::vector<Held>());
      for (const Held& slices : held.back()) next = std::max(next, slices.epoch + 1);
    }
    const Origin origin = newest_origin(held, next);
    if (origin.step <= opening.epoch.origin.step) continue;
    opening.history = history;
    opening.epoch.number = next;
    opening.epoch.origin = origin;
  }
  return opening;
}

std::vector<std::string> differing_copies(std::span<const std::vector<Held>> held) {
  std::map<std::pair<Moment, int>, uint64_t> own;
  for (const std::vector<Held>& member : held) {
    for (const Held& slices : member) {
      if (slices.own) own[{{slices.step, slices.epoch}, slices.rank}] = slices.hash;
    }
  }
  std::vector<std::string> lines;
  for (const std::vector<Held>& member : held) {
    for (const Held& slices : member) {
      const auto found = own.find({{slices.step, slices.epoch}, slices.rank});
      if (slices.own || found == own.end() || found->second == slices.hash) continue;
      lines.push_back(base::text(
          "rank ", slices.rank, " of membership ", slices.epoch, " has other slices after ", slices.step,
          " steps (", base::hash_text(found->second), ") than its buddy's copy of them (",
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

base::Json to_json(const Held& held) {
  return {{"step", held.step}, {"membership", held.epoch},           {"ranks", held.ranks},
          {"rank", held.rank}, {"hash", base::hash_text(held.hash)}, {"own", held.own}};
}

Held held_from_json(const base::Json& json, const std::string& name) {
  return {.step = base::require<int64_t>(json, "step", name),
          .epoch = base::require<int64_t>(json, "membership", name),
          .ranks = base::require<int>(json, "ranks", name),
          .rank = base::require<int>(json, "rank", name),
          .hash = base::parse_hash(base::require<std::string>(json, "hash", name)),
          .own = base::require<bool>(json, "own", name)};
}

base::Json to_json(const Arrival& arrival) {
  base::Json json{{"member", to_json(arrival.member)},
                  {"history", base::hash_text(arrival.history)},
                  {"snapshots", base::Json::array()}};
  for (const Held& held : arrival.held) json["snapshots"].push_back(to_json(held));
  return json;
}

Arrival arrival_from_json(const base::Json& json, const std::string& name) {
  Arrival arrival{.member = member_from_json(base::require<base::Json>(json, "member", name), name),
                  .history = base::parse_hash(base::require<std::string>(json, "history", name))};
  for (const base::Json& held : base::require<base::Json>(json, "snapshots", name))
    arrival.held.push_back(held_from_json(held, name));
  return arrival;
}

base::Json to_json(const Opening& opening) {
  return {{"membership", to_json(opening.epoch)}, {"history", base::hash_text(opening.history)}};
}

Opening opening_from_json(const base::Json& json, const std::string& name) {
  return {.epoch = epoch_from_json(base::require<base::Json>(json, "membership", name), name),
          .history = base::parse_hash(base::require<std::string>(json, "history", name))};
}

base::Json to_json(const Epoch& epoch) {
  base::Json json{{"number", epoch.number},
                  {"members", base::Json::array()},
                  {"step", epoch.origin.step},
                  {"layout", epoch.origin.epoch},
                  {"holders", epoch.origin.holders}};
  for (const Member& member : epoch.members) json["members"].push_back(to_json(member));
  return json;
}

Epoch epoch_from_json(const base::Json& json, const std::string& name) {
  Epoch epoch;
  epoch.number = base::require<int64_t>(json, "number", name);
  epoch.origin = {.step = base::require<int64_t>(json, "step", name),
                  .epoch = base::require<int64_t>(json, "layout", name),
                  .holders = base::require<std::vector<int>>(json, "holders", name)};
  for (const base::Json& member : base::require<base::Json>(json, "members", name))
    epoch.members.push_back(member_from_json(member, name));
  return epoch;
}

}  // namespace sluice::membership

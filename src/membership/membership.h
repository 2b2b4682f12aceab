// The set of ranks that trains together for a while, and what it goes on from.
//
// Epochs follow one another without a restart of the run. A *member* is one rank's supervisor: it outlives
// the workers that it starts, one an epoch, and the memory that they seal their snapshots in is its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace sluice::membership {

using MemberId = uint64_t;  // of one supervisor, of no other one before or after it

struct Member {
  MemberId id = 0;
  std::string host;     // members of one host share its devices
  std::string address;  // where others reach it …
  int port = 0;
  int store_port = 0;  // … and its worker, where that serves the next epoch's store
  bool operator==(const Member&) const = default;
};

// One rank's owner slices behind `step` steps, whole and sealed, in a member's memory.
struct HeldSnapshot {
  int64_t step = 0;
  int64_t membership = 0;  // whose owner layout they are cut by: that of `ranks` ranks
  int ranks = 0;
  int rank = 0;  // whose they are: the member's own, or those that it keeps for its buddy
  uint64_t hash = 0;
  bool own = true;
  bool operator==(const HeldSnapshot&) const = default;
};

// What an epoch goes on from.
struct Origin {
  static constexpr int64_t kNoSnapshot = -1;
  int64_t step = kNoSnapshot;  // steps done; without a snapshot: the newest checkpoint decides
  int64_t membership = 0;      // whose owner layout
  std::vector<int> holders;    // by rank of that layout: who of the new members has its slices
  bool operator==(const Origin&) const = default;
};

struct Membership {
  int64_t number = 0;
  std::vector<Member> members;  // by rank
  Origin origin;
  bool operator==(const Membership&) const = default;

  int ranks() const { return static_cast<int>(members.size()); }
  int rank_of(MemberId member) const;  // -1: none of its ranks
};

// The newest step all of whose slices somebody holds; of one step, that of the newest epoch. A rank's own
// slices go before its buddy's copy. `held` is of each member, all of them of epoch `present`: a step of that
// epoch which one of them has not sealed does not count, for the older one is held by more of them, and what
// hangs on one member only is lost with the next.
Origin newest_origin(std::span<const std::vector<HeldSnapshot>> held, int64_t present);

// One of those who begin a run together, and what a supervisor before it left it.
struct Arrival {
  Member member;
  uint64_t history = 0;                 // that `held` is of; 0: of none
  std::vector<HeldSnapshot> snapshots;  // steps and epochs name the same moments within one history only
};

// The first epoch of those who arrived, by rank, and the history that it continues, 0 for none: it goes on
// from the newest step that is whole among them, with a number that no epoch of that history had.
struct FirstMembership {
  Membership membership;
  uint64_t history = 0;
};
FirstMembership first_membership_of(std::span<const Arrival> arrivals);

// Ranks whose own slices differ from their buddy's copy of the same step and epoch: memory or a processor is
// at fault. One line each, for people.
std::vector<std::string> differing_copies(std::span<const std::vector<HeldSnapshot>> held);

base::Json to_json(const Arrival& arrival);
Arrival arrival_from_json(const base::Json& json, const std::string& name);
base::Json to_json(const FirstMembership& opening);
FirstMembership first_membership_from_json(const base::Json& json, const std::string& name);
base::Json to_json(const Membership& membership);
Membership membership_from_json(const base::Json& json, const std::string& name);
base::Json to_json(const Member& member);
Member member_from_json(const base::Json& json, const std::string& name);
base::Json to_json(const HeldSnapshot& held);
HeldSnapshot held_snapshot_from_json(const base::Json& json, const std::string& name);

}  // namespace sluice::membership

// A membership: a set of ranks that train together for some time, and the state that they start from.
//
// Memberships follow one another without a restart of the run. A *member* is one rank's supervisor. It
// outlives its workers, one per membership, and owns the memory for their snapshots.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace sluice::membership {

using MemberId = uint64_t;  // unique to one supervisor, never reused

struct Member {
  MemberId id = 0;
  std::string host;     // members with equal hosts share its devices
  std::string address;  // other members reach it here …
  int port = 0;
  int store_port = 0;  // … and its worker here, if it serves the next membership's store
  bool operator==(const Member&) const = default;
};

// One rank's owner slices after `step` steps, complete and sealed, in a member's memory.
struct HeldSnapshot {
  int64_t step = 0;
  int64_t membership = 0;  // the membership with `ranks` ranks whose owner layout defines the slices
  int ranks = 0;
  int rank = 0;  // owner of the slices: the member itself, or the rank that it is the buddy of
  uint64_t hash = 0;
  bool own = true;
  bool operator==(const HeldSnapshot&) const = default;
};

// The state that a membership starts from.
struct Origin {
  static constexpr int64_t kNoSnapshot = -1;
  int64_t step = kNoSnapshot;  // steps done; kNoSnapshot: start from the newest checkpoint
  int64_t membership = 0;      // its owner layout defines the slices
  std::vector<int> holders;    // by rank of that layout: the new rank that has its slices
  bool operator==(const Origin&) const = default;
};

struct Membership {
  int64_t number = 0;
  std::vector<Member> members;  // in rank order
  Origin origin;
  bool operator==(const Membership&) const = default;

  int ranks() const { return static_cast<int>(members.size()); }
  int rank_of(MemberId member) const;  // -1: not a member
};

// The newest step whose slices are all held by some member; if several memberships sealed it, the newest of
// them. A rank's own slices are preferred to its buddy's copy. `held` has an entry per member of membership
// `present`. A step of that membership that some member has not sealed does not count: the step before has
// more copies.
Origin newest_origin(std::span<const std::vector<HeldSnapshot>> held, int64_t present);

// A rank's supervisor at the start of a run, with the snapshots that a previous supervisor left it.
struct Arrival {
  Member member;
  uint64_t history = 0;                 // the history that `snapshots` belong to; 0: none
  std::vector<HeldSnapshot> snapshots;  // steps and memberships are unique only within a history
};

// The first membership, of all arrivals in rank order, and the history that it continues (0: none). It starts
// from the newest step that is complete among them. Its number is new in that history.
struct FirstMembership {
  Membership membership;
  uint64_t history = 0;
};
FirstMembership first_membership_of(std::span<const Arrival> arrivals);

// Reports ranks whose own slices differ from their buddy's copy of the same step and membership, a line for
// each: the memory or a processor is faulty.
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

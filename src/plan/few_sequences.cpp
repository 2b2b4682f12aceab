#include "plan/few_sequences.h"

#include <algorithm>

namespace sluice::plan {
namespace {

std::vector<Place> without(std::vector<Place> members, Place left_out) {
  std::erase(members, left_out);
  return members;
}

std::vector<Place> with(std::vector<Place> members, Place added) {
  members.insert(std::lower_bound(members.begin(), members.end(), added), added);
  return members;
}

size_t last_of(const PackedAssignment& packed) {
  size_t last = 0;
  while (packed.pipelines[last].makespan_ns != packed.end_ns()) ++last;
  return last;
}

}  // namespace

int64_t last_end_ns(const std::vector<PackedPipeline>& packed) {
  int64_t last = 0;
  for (const PackedPipeline& pipeline : packed) last = std::max(last, pipeline.makespan_ns);
  return last;
}

void FewSequences::improve(PackedAssignment& packed, int64_t goal_ns) const {
  while (packed.end_ns() > goal_ns && (relocate_one(packed) || exchange_two(packed))) {
  }
}

bool FewSequences::take_if_sooner(PackedAssignment& packed, const std::array<NewMembers, 2>& changed) const {
  const int64_t last_ns = packed.end_ns();
  for (const NewMembers& each : changed) {
    if (options_.pack(each.pipeline, each.members).makespan_ns >= last_ns) return false;
  }
  for (const NewMembers& each : changed) {
    packed.pipelines[each.pipeline] = options_.pack(each.pipeline, each.members);
    packed.members[each.pipeline] = each.members;
  }
  return true;
}

bool FewSequences::relocate_one(PackedAssignment& packed) const {
  const size_t from = last_of(packed);
  for (const Place moved : packed.members[from]) {
    const std::vector<Place> rest = without(packed.members[from], moved);
    for (size_t to = 0; to < packed.pipelines.size(); ++to) {
      if (to == from || !options_.fits(moved, to)) continue;
      if (take_if_sooner(packed, {{{from, rest}, {to, with(packed.members[to], moved)}}})) return true;
    }
  }
  return false;
}

bool FewSequences::exchange_two(PackedAssignment& packed) const {
  const size_t from = last_of(packed);
  for (const Place given : packed.members[from]) {
    const std::vector<Place> rest = without(packed.members[from], given);
    for (size_t to = 0; to < packed.pipelines.size(); ++to) {
      if (to == from || !options_.fits(given, to)) continue;
      for (const Place taken : packed.members[to]) {
        if (options_.equal(taken, given) || !options_.fits(taken, from)) continue;
        const std::vector<Place> others = with(without(packed.members[to], taken), given);
        if (take_if_sooner(packed, {{{from, with(rest, taken)}, {to, others}}})) return true;
      }
    }
  }
  return false;
}

}  // namespace sluice::plan

#include "plan/longest.h"

#include <algorithm>

namespace sluice::plan {
namespace {

constexpr int kTries = 3000;

}  // namespace

LongestSequences::LongestSequences(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                                   const FloorTable& floors)
    : known_(std::min(kMost, lengths.size())) {
  shares_.resize(groups.size() * known_);
  for (size_t k = 0; k < groups.size(); ++k) {
    const SchemeCost& scheme = *groups[k].scheme;
    const bool staged = scheme.scheme().pp > 1 && scheme.scheme().cp == 1;
    const int64_t credit = std::max<int64_t>(1, scheme.credit_tokens());
    for (size_t i = 0; i < known_; ++i) {
      if (!floors.fits(i, k)) continue;
      Share& share = shares_[k * known_ + i];
      share.busy_ns = floors.floor_ns(i, k);
      if (!staged) continue;
      const int64_t path_ns = scheme.floors().path_ns(lengths[i]);
      share.passing_ns = scheme.floors().passing_ns(lengths[i]);
      share.turning_ns = scheme.floors().turning_ns(lengths[i]) - share.passing_ns;
      share.turned_ns = path_ns - scheme.floors().turning_ns(lengths[i]);
      share.memory_ns = static_cast<int64_t>(cost::Wide{path_ns} * lengths[i] / credit);
      share.alone_ns = 2 * lengths[i] > credit ? path_ns : 0;
    }
    pipelines_.resize(pipelines_.size() + static_cast<size_t>(groups[k].pipelines),
                      {.group = k, .held = {.busy_ns = floors.fill_ns(k)}});
  }
}

bool LongestSequences::exceed(int64_t end_ns, size_t count, std::span<const size_t> first) {
  end_ns_ = end_ns;
  count_ = count;
  first_ = first;
  tries_ = kTries;
  return !place(0) && tries_ > 0;
}

// REQUIRES: the sequence is no longer than those held.
LongestSequences::Share LongestSequences::with(const Share& held, const Share& share) {
  const int64_t turning_ns = held.turning_ns + share.turning_ns;
  return {.busy_ns = held.busy_ns + share.busy_ns,
          .passing_ns = held.passing_ns + share.passing_ns,
          .turning_ns = turning_ns,
          .turned_ns = std::max(held.turned_ns, share.turned_ns + turning_ns),
          .memory_ns = held.memory_ns + share.memory_ns,
          .alone_ns = held.alone_ns + share.alone_ns};
}

bool LongestSequences::in_time(const Share& held) const {
  return std::max({held.busy_ns, held.turned_ns + held.passing_ns, held.memory_ns, held.alone_ns}) <= end_ns_;
}

// Whether this sequence and those after it find places. Pipelines are restored.
bool LongestSequences::place(size_t sequence) {
  if (sequence == count_) return true;
  for (size_t p = 0; p < pipelines_.size(); ++p) {
    Pipeline& pipeline = pipelines_[p];
    if (sequence < first_[pipeline.group]) continue;
    if (--tries_ <= 0) return false;
    const bool tried = p > 0 && pipelines_[p - 1] == pipeline;
    const Share& share = shares_[pipeline.group * known_ + sequence];
    const Share held = with(pipeline.held, share);
    if (tried || !in_time(held)) continue;
    const Pipeline before = pipeline;
    pipeline.held = held;
    const bool placed = place(sequence + 1);
    pipeline = before;
    if (placed) return true;
  }
  return false;
}

}  // namespace sluice::plan

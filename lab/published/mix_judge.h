// Which of many mixes Algorithm 1 ends first with, by Eq. 2, on one batch: what trying all of them finds,
// most of them ruled out before or during their trials.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/mix.h"
#include "published/dispatch.h"

namespace sluice::published {

// Of one batch the lengths that differ, ascending, how many sequences have each, and how long these take on
// each scheme: T(l, P) by the constants as printed.
class LengthTimes {
 public:
  static constexpr int64_t kDoesNotFit = std::numeric_limits<int64_t>::max();

  // The schemes must outlive it.
  LengthTimes(const std::vector<int64_t>& lengths, std::span<const plan::SchemeCost> schemes);

  size_t size() const { return lengths_.size(); }
  int64_t length(size_t index) const { return lengths_[index]; }
  int64_t sequences(size_t index) const { return sequences_[index]; }
  // By scheme.
  std::span<const int64_t> times_ns(size_t index) const {
    return std::span(times_ns_).subspan(index * schemes_.size(), schemes_.size());
  }
  std::span<const plan::SchemeCost> schemes() const { return schemes_; }
  // Of a length of the batch.
  size_t index_of(int64_t length) const;

 private:
  std::span<const plan::SchemeCost> schemes_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> sequences_;
  std::vector<int64_t> times_ns_;  // by length, then scheme
};

// On which mixes a batch may end by M at all, by Eq. 2. A pipeline of scheme k that does has
// Σ T_ik <= M − (PP_k − 1)·T_jk, j the longest of its sequences; so each of them takes at least the share
// u_ik = T_ik ÷ (M − (PP_k − 1)·T_ik) of it, and d_k pipelines of price λ_k do not hold a batch with
//   Σ_i min_k λ_k·u_ik > Σ_k λ_k·d_k.
// Prices are found by a few damped rounds: what is fuller than the others gets dearer.
class EndBound {
 public:
  static constexpr int64_t kFull = int64_t{1} << 30;

  // The times must outlive it.
  explicit EndBound(const LengthTimes& times);

  // M. REQUIRES: called before fullness().
  void set_end(int64_t end_ns);
  // What the batch takes of the mix at least, in parts of kFull: above it nothing ends by M, and prices are
  // not sought further.
  int64_t fullness(const plan::Mix& mix) const;

 private:
  const LengthTimes& times_;
  // Lengths that hardly differ count as the shortest of them.
  struct LengthClass {
    size_t shortest = 0;  // index into the times
    int64_t sequences = 0;
  };
  std::vector<LengthClass> classes_;
  std::vector<int64_t> shares_;  // u by class, then scheme
};

class MixJudge {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

  // The schemes must outlive it.
  MixJudge(const std::vector<int64_t>& lengths, std::span<const plan::SchemeCost> schemes,
           const DispatchOptions& options);

  // What dispatch() estimates on the mix; kNever where it does not hold the batch.
  int64_t estimated_ns(const plan::Mix& mix) const;

  // The first of those with the least estimate, 0 where none holds the batch. `guess` is tried first, which
  // changes nothing but the time that it takes. REQUIRES: some mix.
  size_t best_of(std::span<const plan::Mix> mixes, size_t guess = 0) const;

 private:
  LengthTimes times_;
  std::vector<std::vector<int>> orders_;  // by trial; of indices into times_
};

}  // namespace sluice::published

// Finds the mix on which Algorithm 1 ends first, by Eq. 2, for one batch. The result is that of trying all
// mixes, but most are ruled out before or during their trials.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/mix.h"
#include "published/dispatch.h"

namespace sluice::published {

// The distinct lengths of one batch, ascending, with their numbers of sequences and their times on each
// scheme: T(l, P) by the constants as printed.
class LengthTimes {
 public:
  static constexpr int64_t kDoesNotFit = std::numeric_limits<int64_t>::max();

  // The schemes must outlive it.
  LengthTimes(const std::vector<int64_t>& lengths, std::span<const plan::SchemeCost> schemes);

  size_t size() const { return lengths_.size(); }
  int64_t length(size_t index) const { return lengths_[index]; }
  int64_t sequences(size_t index) const { return sequences_[index]; }
  // One time per scheme.
  std::span<const int64_t> times_ns(size_t index) const {
    return std::span(times_ns_).subspan(index * schemes_.size(), schemes_.size());
  }
  std::span<const plan::SchemeCost> schemes() const { return schemes_; }
  // The index of one of the batch's lengths.
  size_t index_of(int64_t length) const;

 private:
  std::span<const plan::SchemeCost> schemes_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> sequences_;
  std::vector<int64_t> times_ns_;  // by length, then scheme
};

// A bound by Eq. 2 on the mixes on which a batch can end by M. A pipeline of scheme k that ends by M has Σ
// T_ik <= M − (PP_k − 1)·T_jk, j the longest of its sequences. So sequence i takes at least the share u_ik =
// T_ik ÷ (M − (PP_k − 1)·T_ik) of it. A mix with d_k pipelines of price λ_k cannot hold a batch if
//   Σ_i min_k λ_k·u_ik > Σ_k λ_k·d_k.
// A few damped rounds find prices: a scheme that is fuller than the others becomes dearer.
class EndBound {
 public:
  static constexpr int64_t kFull = int64_t{1} << 30;

  // The times must outlive it.
  explicit EndBound(const LengthTimes& times);

  // Sets M. REQUIRES: called before fullness().
  void set_end(int64_t end_ns);
  // The least part of the mix that the batch takes, in units of kFull. Above kFull no assignment ends by M,
  // and the search for prices stops.
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

  // dispatch()'s estimate for the mix; kNever if the mix does not hold the batch.
  int64_t estimated_ns(const plan::Mix& mix) const;

  // The first mix with the least estimate; 0 if no mix holds the batch. `guess` is tried first, which
  // influences only the running time. REQUIRES: at least one mix.
  size_t best_of(std::span<const plan::Mix> mixes, size_t guess = 0) const;

 private:
  LengthTimes times_;
  std::vector<std::vector<int>> orders_;  // by trial; indices into times_
};

}  // namespace sluice::published

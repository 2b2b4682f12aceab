#include "model/differences.h"

#include "model/outline.h"
#include "model/outline_sizes.h"

namespace sluice::model {

std::vector<SizeDifference> size_differences(const Model& first, const Model& second) {
  std::vector<SizeDifference> all;
  for (const OutlineSize& size : outline_sizes()) {
    const int64_t one = first.outline().*size.value, other = second.outline().*size.value;
    if (one != other) all.push_back({size.name, one, other});
  }
  return all;
}

bool compute_alike(const Model& first, const Model& second) {
  Outline like = first.outline();
  like.family = second.family();
  return like == second.outline();
}

bool cost_alike(const Model& first, const Model& second) {
  Outline like = first.outline();
  const Outline& other = second.outline();
  like.family = other.family;
  like.counted = other.counted;
  like.norm_eps = other.norm_eps;
  like.rope = other.rope;
  return like == other;
}

}  // namespace sluice::model

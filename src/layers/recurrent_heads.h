// Heads of a recurrent layer, cut over lanes that exchange them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "model/head_parts.h"
#include "model/shape.h"

namespace sluice::layers {

// The heads of a TP rank that a lane works on, and where they stand among all the rank's.
class LaneHeads {
 public:
  LaneHeads(const model::Recurrent& shape, int tp, int lanes, int lane)
      : shape_(shape),
        all_{shape.value_heads / tp, shape.key_heads / tp},
        part_(model::head_part(all_, lanes, lane)) {}

  int64_t keys() const { return part_.keys.size(); }
  int64_t values() const { return part_.queries.size(); }
  int64_t key_columns() const { return keys() * shape_.key_width; }
  int64_t value_columns() const { return values() * shape_.value_width; }

  // Of columns [queries, keys, values], of [rates, decays], and of outputs.
  std::vector<base::Interval> qkv() const {
    const int64_t behind = all_.keys * shape_.key_width;
    return {of_heads(part_.keys, shape_.key_width, 0), of_heads(part_.keys, shape_.key_width, behind),
            of_heads(part_.queries, shape_.value_width, 2 * behind)};
  }
  std::vector<base::Interval> rates() const {
    std::vector<base::Interval> all{of_heads(part_.queries, decays_of_head(), 0)};
    if (rated()) all.push_back(of_heads(part_.queries, 1, all_.queries));
    return all;
  }
  // Of a value head's numbers: whether a rate comes first, and how many are decays.
  bool rated() const { return shape_.recurrence == model::Recurrence::kGatedDelta; }
  int64_t decays_of_head() const { return shape_.numbers() - (rated() ? 1 : 0); }
  base::Interval decays() const { return of_heads(part_.queries, decays_of_head(), 0); }
  std::vector<base::Interval> outputs() const { return {of_heads(part_.queries, shape_.value_width, 0)}; }
  // Of a convolution's rows, which lie as files have them, those of queries, keys and values.
  std::vector<base::Interval> convolution() const {
    if (shape_.recurrence != model::Recurrence::kMamba2) return qkv();
    const int64_t values = all_.queries * shape_.value_width, keys = all_.keys * shape_.key_width;
    return {of_heads(part_.keys, shape_.key_width, values + keys),
            of_heads(part_.keys, shape_.key_width, values), of_heads(part_.queries, shape_.value_width, 0)};
  }
  base::Interval value_heads() const { return part_.queries; }

  // Whether each of the lane's key heads serves as many of its value heads; else which serves each of them.
  bool even() const { return model::uniform_runs(all_, part_).size() == 1; }
  std::vector<int64_t> key_of_value() const {
    const int64_t shared = all_.queries / all_.keys;
    std::vector<int64_t> keys;
    for (int64_t head = part_.queries.begin; head < part_.queries.end; ++head)
      keys.push_back(head / shared - part_.keys.begin);
    return keys;
  }

 private:
  static base::Interval of_heads(base::Interval heads, int64_t width, int64_t first) {
    return {first + heads.begin * width, first + heads.end * width};
  }

  const model::Recurrent& shape_;
  model::HeadCounts all_;  // queries: of values
  model::HeadPart part_;
};

}  // namespace sluice::layers

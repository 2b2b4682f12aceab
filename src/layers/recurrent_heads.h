// Heads of a recurrent layer, cut over lanes that exchange them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "model/head_parts.h"
#include "model/layer.h"

namespace sluice::layers {

// The heads of a recurrence, and the layout of its numbers and rows.
struct RecurrentShape {
  const model::StateHeads& heads;
  bool rated = false;   // a rate for each value head precedes the decays
  bool turned = false;  // rows of a convolution are values, keys, queries
};

// The heads of a TP rank that one lane works on, and their place among all heads of the rank.
class LaneHeads {
 public:
  LaneHeads(const RecurrentShape& shape, int tp, int lanes, int lane)
      : shape_(shape),
        own_(shape.heads),
        all_{own_.value_heads / tp, own_.key_heads / tp},
        part_(model::head_part(all_, lanes, lane)) {}

  int64_t keys() const { return part_.keys.size(); }
  int64_t values() const { return part_.queries.size(); }
  int64_t key_columns() const { return keys() * own_.key_width; }
  int64_t value_columns() const { return values() * own_.value_width; }

  // This lane's columns of [queries, keys, values], of [rates, decays], and of outputs.
  std::vector<base::Interval> qkv() const {
    const int64_t behind = all_.keys * own_.key_width;
    return {of_heads(part_.keys, own_.key_width, 0), of_heads(part_.keys, own_.key_width, behind),
            of_heads(part_.queries, own_.value_width, 2 * behind)};
  }
  std::vector<base::Interval> rates() const {
    if (!shape_.rated) return {decays()};
    return {of_heads(part_.queries, 1, 0), of_heads(part_.queries, decays_of_head(), all_.queries)};
  }
  // How many decays a value head has.
  int64_t decays_of_head() const { return own_.numbers - (shape_.rated ? 1 : 0); }
  base::Interval decays() const { return of_heads(part_.queries, decays_of_head(), 0); }
  std::vector<base::Interval> outputs() const { return {of_heads(part_.queries, own_.value_width, 0)}; }
  // This lane's queries, keys and values among a convolution's rows, which lie in the files' order.
  std::vector<base::Interval> convolution() const {
    if (!shape_.turned) return qkv();
    const int64_t values = all_.queries * own_.value_width, keys = all_.keys * own_.key_width;
    return {of_heads(part_.keys, own_.key_width, values + keys), of_heads(part_.keys, own_.key_width, values),
            of_heads(part_.queries, own_.value_width, 0)};
  }
  base::Interval value_heads() const { return part_.queries; }

  // Whether each of the lane's key heads serves equally many value heads; else key_of_value() says which.
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

  RecurrentShape shape_;
  const model::StateHeads& own_;
  model::HeadCounts all_;  // queries: the value heads
  model::HeadPart part_;
};

}  // namespace sluice::layers

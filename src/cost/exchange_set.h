// Which exchanges a planner may choose for the micro-batches that lie on several lanes.
#pragma once

namespace sluice::cost {

// Where none of them can be used, because there are too few heads or too little memory, a ring is. Those with
// which queries travel are there where they are asked for: on links that send and receive at once a ring of
// lanes with even parts moves no more.
struct ExchangeSet {
  bool ring = true;
  bool heads = true;
  bool nested = true;
  bool balanced = false;
  bool queries = false;
  // Of those that it can use a micro-batch takes one by its number of tokens instead of the cheapest: to see
  // all of them at work.
  bool in_turn = false;
  bool moves_queries() const { return balanced || queries; }
  bool operator==(const ExchangeSet&) const = default;
};

}  // namespace sluice::cost

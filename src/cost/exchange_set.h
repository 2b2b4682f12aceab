// The exchanges that a planner may choose for micro-batches on several lanes.
#pragma once

namespace sluice::cost {

// A ring is used if none of them can be, because there are too few heads or too little memory. Exchanges in
// which queries travel are used on request: on links that send and receive at once, a ring of lanes with even
// parts moves no more.
struct ExchangeSet {
  bool ring = true;
  bool heads = true;
  bool nested = true;
  bool balanced = false;
  bool queries = false;
  // A micro-batch takes one of the usable exchanges by its number of tokens instead of the cheapest, to show
  // all of them at work.
  bool in_turn = false;
  bool moves_queries() const { return balanced || queries; }
  bool operator==(const ExchangeSet&) const = default;
};

}  // namespace sluice::cost

// The index of a sequence in a sorted batch.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace sluice::plan {

// A sequence by its place among the sequences of a batch, longest first: an index of all that is listed so.
// The index of a sequence in the batch itself is an int, and none becomes a place by accident.
class Place {
 public:
  explicit constexpr Place(size_t at) : at_(static_cast<int32_t>(at)) {}
  constexpr operator size_t() const { return static_cast<size_t>(at_); }
  Place& operator++() {
    ++at_;
    return *this;
  }
  auto operator<=>(const Place&) const = default;

 private:
  int32_t at_;
};

}  // namespace sluice::plan

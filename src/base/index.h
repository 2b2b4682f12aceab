// Indices that know what they index.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace sluice::base {

// An index of things of one kind, which `Of` names, or of none. It is used on vectors like a size_t and takes
// 4 bytes. No number and no index of another kind becomes one by accident.
template <class Of>
class Index {
 public:
  constexpr Index() = default;  // of none
  explicit constexpr Index(size_t at) : at_(static_cast<int32_t>(at)) {}
  constexpr bool exists() const { return at_ >= 0; }
  // REQUIRES: it exists.
  constexpr operator size_t() const { return static_cast<size_t>(at_); }
  Index& operator++() {
    ++at_;
    return *this;
  }
  auto operator<=>(const Index&) const = default;

 private:
  int32_t at_ = -1;
};

}  // namespace sluice::base

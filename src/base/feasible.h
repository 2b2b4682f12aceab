// An answer that may be that something cannot be done: infeasibility is expected wherever several ways are
// tried, and becomes a user's error only where none is left.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace sluice::base {

// Why what was asked for cannot be done with what there is: one line with values and a way out.
struct Infeasible {
  std::string why;
};

// A value, or why there is none.
template <typename T>
class Feasible {
 public:
  Feasible(T value) : value_(std::move(value)) {}
  Feasible(Infeasible none) : none_(std::move(none)) {}

  explicit operator bool() const { return value_.has_value(); }
  // REQUIRES: there is a value.
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  // REQUIRES: there is none.
  const Infeasible& none() const { return none_; }

  // The value; InfeasibleError, which `what` begins where it is given ("step 3"), when there is none.
  T or_throw(const std::string& what = "") && {
    if (value_) return std::move(*value_);
    throw InfeasibleError(what.empty() ? none_.why : what + ": " + none_.why);
  }

 private:
  std::optional<T> value_;
  Infeasible none_;
};

}  // namespace sluice::base

// A value, or the reason why there is none: infeasibility is expected wherever several choices are tried, and
// becomes a user's error only if none of them is feasible.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace sluice::base {

// Why a request cannot be met with the given resources: one line with values and a way out.
struct Infeasible {
  std::string why;
};

// A value, or the reason why there is none.
template <typename T>
class Feasible {
 public:
  Feasible(T value) : value_(std::move(value)) {}
  Feasible(Infeasible none) : none_(std::move(none)) {}

  explicit operator bool() const { return value_.has_value(); }
  // REQUIRES: it has a value.
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  // REQUIRES: it has no value.
  const Infeasible& none() const { return none_; }

  // The value. Without one, InfeasibleError with the reason, after `what` ("step 3") if that is given.
  T or_throw(const std::string& what = "") && {
    if (value_) return std::move(*value_);
    throw InfeasibleError(what.empty() ? none_.why : what + ": " + none_.why);
  }

 private:
  std::optional<T> value_;
  Infeasible none_;
};

}  // namespace sluice::base

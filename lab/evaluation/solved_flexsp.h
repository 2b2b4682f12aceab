// FlexSP with the groups of its MILP for micro-batches in which CBC finds faster groups than the search,
// within some seconds each.
#pragma once

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "study/deepspeed.h"
#ifdef SLUICE_MILP
#include "solver/flex_sp_milp.h"
#endif

namespace sluice::bench {

#ifdef SLUICE_MILP

class SolvedFlexSp {
 public:
  // With `seconds` = 0, all groups come from the search.
  explicit SolvedFlexSp(double seconds) : seconds_(seconds) {}

  std::unique_ptr<study::System> make(const study::SystemInputs& inputs) {
    if (seconds_ == 0) return study::make_flexsp(inputs);
    improver_ = std::make_shared<milp::FlexSpImprover>(seconds_);
    return study::make_flexsp(inputs,
                              [improver = improver_](auto lengths, const auto& cost, const auto& found) {
                                return (*improver)(lengths, cost, found);
                              });
  }

  // Counts micro-batches of the system made last: passed to the improver; proved to have no groups that are
  // faster by a thousandth; and improved.
  base::Json counts() const {
    if (!improver_) return nullptr;
    const auto& [asked, proved, improved] = improver_->counts();
    return {{"seconds", seconds_}, {"asked", asked}, {"proved", proved}, {"improved", improved}};
  }

 private:
  double seconds_;
  std::shared_ptr<milp::FlexSpImprover> improver_;
};

#else

class SolvedFlexSp {
 public:
  explicit SolvedFlexSp(double seconds) {
    if (seconds > 0)
      throw base::InputError("--milp-seconds needs CBC: tools/bootstrap --test installs coinor-libcbc-dev");
  }
  std::unique_ptr<study::System> make(const study::SystemInputs& inputs) {
    return study::make_flexsp(inputs);
  }
  base::Json counts() const { return nullptr; }
};

#endif

}  // namespace sluice::bench

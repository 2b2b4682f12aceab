#include "cost/fixed_point.h"

namespace sluice::cost {

void refuse_long_duration() {
  throw base::InputError(
      "by the calibration a cell or transfer takes more than 13 days: correct its figures or plan fewer "
      "tokens");
}

}  // namespace sluice::cost

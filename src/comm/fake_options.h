// How badly the in-process ranks of comm/fake.h fare.
#pragma once

#include <cstdint>

namespace sluice::comm {

struct FakeOptions {
  uint64_t seed = 1;
  int64_t max_delay_ns = 0;             // each transfer takes uniformly 0 … this long
  int64_t timeout_ns = 60'000'000'000;  // a wait() that lasts longer is an error
};

}  // namespace sluice::comm

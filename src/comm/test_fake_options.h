// Delays and timeouts of the in-process ranks of comm/test_fake.h.
#pragma once

#include <cstdint>

namespace sluice::comm {

struct FakeOptions {
  uint64_t seed = 1;
  int64_t max_delay_ns = 0;             // each transfer takes 0 to this long, uniformly distributed
  int64_t timeout_ns = 60'000'000'000;  // a wait() that lasts longer is an error
};

}  // namespace sluice::comm

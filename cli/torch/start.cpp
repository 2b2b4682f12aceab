// The part of sluice-torch that runs before the initialisers of libtorch and all other libraries. These take
// most of the start's time, and may fail for lack of memory.
#include "cli/failure.h"
#include "transport/launch.h"

namespace {

void before_torch(int, char**, char**) {
  sluice::cli::require_address_space();
  sluice::transport::use_batch_scheduling();
}
[[gnu::used, gnu::section(".preinit_array")]] void (*const run_before_torch)(int, char**,
                                                                             char**) = &before_torch;

}  // namespace

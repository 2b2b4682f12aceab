// The part of sluice-torch that runs ahead of the initialisers of libtorch and all other libraries, which
// take most of a start's time and may fail of too little memory.
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

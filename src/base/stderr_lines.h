// Lines on stderr from a process that has better things to do than to wait for their reader: who started it
// may hold a pipe there that nobody reads.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::base {

// Whether all of `lines` was taken within `patience_ns`. What a terminal or a file is given is waited for.
bool say_on_stderr(std::string_view lines, int64_t patience_ns = 1'000'000'000);

}  // namespace sluice::base

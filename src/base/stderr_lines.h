// Writes lines to stderr without waiting long for their reader: the process that started this one may hold a
// pipe there and never read from it.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::base {

// Whether all of `lines` was written within `patience_ns`. Terminals and files may block for longer.
bool say_on_stderr(std::string_view lines, int64_t patience_ns = 1'000'000'000);

}  // namespace sluice::base

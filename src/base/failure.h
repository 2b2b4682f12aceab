// Failures that are not ours, as a line for the user.
#pragma once

#include <exception>
#include <string>

namespace sluice::base {

// Memory and threads that the system refused, with the limit and the way out; else the first line of what the
// exception says.
std::string describe_failure(const std::exception& error);

}  // namespace sluice::base

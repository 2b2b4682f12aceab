// Failures that are not ours, as a line for the user.
#pragma once

#include <exception>
#include <string>

namespace sluice::cli {

// Memory and threads that the system refused, with the limit and the way out; else what the exception says.
std::string describe_failure(const std::exception& error);

// From now on a failure that nobody catches (on a thread, or while libtorch is being loaded) is such a line
// and exit status 1 instead of a signal.
void say_what_nobody_catches();

}  // namespace sluice::cli

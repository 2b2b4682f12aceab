// Failures of libraries and of the system, described as a line for the user.
#pragma once

#include <exception>
#include <string>

namespace sluice::base {

// Describes refused memory and refused threads with the process's limit and the way out. For all other
// exceptions: the first line of their message.
std::string describe_failure(const std::exception& error);

}  // namespace sluice::base

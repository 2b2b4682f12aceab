// What messages offer the user.
#pragma once

#include <string>
#include <vector>

namespace sluice::base {

// "choose one of 1, 2, 4", or of one alone "choose 1". REQUIRES: there is one.
std::string choices_text(const std::vector<std::string>& choices);

}  // namespace sluice::base

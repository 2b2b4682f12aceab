// Choices that messages offer to the user.
#pragma once

#include <string>
#include <vector>

namespace sluice::base {

// "choose one of 1, 2, 4"; for a single choice "choose 1". REQUIRES: choices is not empty.
std::string choices_text(const std::vector<std::string>& choices);

}  // namespace sluice::base

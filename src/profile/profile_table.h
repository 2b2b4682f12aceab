// What a profile found, for people.
#pragma once

#include <string>

#include "profile/probe.h"

namespace sluice::profile {

// For each TP degree a row a kind of work: the curve and how far from it what was measured lies; then links,
// optimiser and activation bytes. Ends with a newline.
std::string profile_table(const ProbeResult& found);

}  // namespace sluice::profile

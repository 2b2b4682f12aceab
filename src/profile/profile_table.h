// Prints a profile's results for people.
#pragma once

#include <string>

#include "profile/probe.h"

namespace sluice::profile {

// One row for each TP degree and kind of work, with the curve and the measurements' distance from it. Then
// links, optimizer and activation bytes. Ends with a newline.
std::string profile_table(const ProbeResult& found);

}  // namespace sluice::profile

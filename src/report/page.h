// The report of a run: one HTML file that needs nothing else.
#pragma once

#include <string>

#include "report/run_data.h"

namespace sluice::report {

// Readable without JavaScript, which only adds zoom and quicker hints to timelines. The same data gives the
// same bytes. REQUIRES: a system.
std::string report_page(const RunData& data);

}  // namespace sluice::report

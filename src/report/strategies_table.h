// strategies.json for people.
#pragma once

#include <string>

#include "base/json_fwd.h"

namespace sluice::report {

// The strategies' context, and a row for each: how often it is taken, its GPUs, its maximum sequence length,
// mean time and throughput. `file` is the content of a strategies.json; InputError naming `name` if a value
// is missing or of another type. Fields that hand-written files lack stay empty. Ends with a newline.
std::string strategies_table(const base::Json& file, const std::string& name);

}  // namespace sluice::report

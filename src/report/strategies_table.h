// strategies.json for people.
#pragma once

#include <string>

#include "base/json_fwd.h"

namespace sluice::report {

// What the strategies were made for, and a row for each: how often it is taken, its GPUs, what it holds, mean
// time and throughput. `file` is the content of a strategies.json; InputError naming `name` where a value is
// missing or of another type. Fields that hand-written files lack stay empty. Ends with a newline.
std::string strategies_table(const base::Json& file, const std::string& name);

}  // namespace sluice::report

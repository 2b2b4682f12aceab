// The name of the JSON type, for headers that only mention it. Sources that read values include base/json.h.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace sluice::base {

// Keeps the order of an object's keys, so that files keep their order when they are read and written.
using Json = nlohmann::ordered_json;

}  // namespace sluice::base

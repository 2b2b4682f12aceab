// The name of a JSON value, for headers that only mention it. Sources that look into one include base/json.h.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace sluice::base {

// Keeps the order of an object's keys, so that files come out as they went in.
using Json = nlohmann::ordered_json;

}  // namespace sluice::base

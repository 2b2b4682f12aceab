// Damaged inputs: JSON whose values, keys and lists are changed at random, and texts whose bytes are.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "base/rng.h"

namespace sluice::fuzz {

// One to four places of `json` get a value that somebody might write there by mistake or malice: another
// type, a limit of an integer type, one more or fewer, another place's value, nothing, a second time.
base::Json damage(base::Json json, base::Rng& rng);

// One to four bytes, runs of bytes or numbers are changed, dropped, doubled or put in.
std::string damage(std::string text, base::Rng& rng);

// A damaged value, sometimes by way of a text whose bytes are damaged. InputError when that is no JSON.
base::Json damaged_json(const base::Json& sound, base::Rng& rng);

}  // namespace sluice::fuzz

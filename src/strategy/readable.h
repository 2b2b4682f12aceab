// Schemes and strategies as people read them: "tp2,cp8 + 2x pp2". Files hold to_text()'s form; parse_scheme()
// and parse_strategy() read both.
#pragma once

#include <string>
#include <string_view>

#include "strategy/scheme.h"
#include "strategy/strategy.h"

namespace sluice::strategy {

// "tp2,pp2,cp8,fsdp8,ep4", degrees of 1 left out; "tp1" where all are.
std::string readable(const Scheme& scheme);

// "tp2,cp8 + 2x pp2": runs of equal schemes are counted.
std::string readable(const Strategy& strategy);

// Replaces each scheme "<2,1,8>" in the text by its degrees with their names, "tp2,cp8". The text may be
// anything.
std::string readable_text(std::string_view text);

}  // namespace sluice::strategy

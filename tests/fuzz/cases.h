// The command line of a fuzz program that runs numbered cases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace sluice::fuzz {

// Cases seed, seed + 1, …
struct Cases {
  int64_t count = 0;
  int64_t seed = 1;
};

// --count N and --seed S over `cases`. InputError telling how to use `program` otherwise.
inline Cases parse_cases(int argc, char** argv, const std::string& program, Cases cases) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const auto value = i + 1 < argc ? base::parse_integer(argv[i + 1]) : std::nullopt;
    if (!value || (name != "--count" && name != "--seed")) {
      throw base::InputError("usage: " + program + " [--count N] [--seed S]");
    }
    (name == "--count" ? cases.count : cases.seed) = *value;
  }
  return cases;
}

}  // namespace sluice::fuzz

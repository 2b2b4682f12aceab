// What fuzz programs share: the command line, and the loop over numbered cases.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace sluice::fuzz {

// Cases seed, seed + 1, …
struct Cases {
  int64_t count = 0;
  int64_t seed = 1;
  std::set<std::string> flags;  // given
};

struct Program {
  std::string name;
  int64_t count = 0;                                          // of cases, where none is asked for
  std::set<std::string> flags;                                // that it knows, such as "--threads"
  std::function<void(const Cases&, uint64_t seed)> run_case;  // throws when the case fails
  std::function<std::string(const Cases&)> summary;  // after all cases; throws when they prove nothing
};

// Runs the cases of `NAME [--count N] [--seed S] [FLAG…]` and prints the summary, or the cases that fail,
// twenty at most. The exit status: 0, 1 when a case failed, 2 for a command line that is wrong.
int run_program(const Program& program, int argc, char** argv);

// RunError saying `fault` unless `condition`.
void require(bool condition, const std::string& fault);

}  // namespace sluice::fuzz
